"""As ours/participant.py, for the code of `systems.BEFORE`."""

import sys

import numpy as np
from folkmoot.federated.client import join
from folkmoot.federated.connection import Tls

from folkmoot.federated.participant import Participant


class PlusOne(Participant):
    def init_weights(self):
        return np.zeros(1, np.float32)

    def train_round(self, weights, epochs, epoch_base):
        return weights + 1, 10, {}


join(PlusOne(), address=sys.argv[1], run_id="bench", tls=Tls(sys.argv[2]))
