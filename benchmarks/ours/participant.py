"""w + 1 with Folkmoot's SDK."""

import sys

import numpy as np

from folkmoot.federated.participant.loop import join_federation
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.participant.policy import Policy


class PlusOne(Participant):
    def init_weights(self):
        return np.zeros(1, np.float32)

    def train_round(self, weights, epochs, epoch_base):
        return weights + 1, 10, {}


join_federation(PlusOne(), address=sys.argv[1], run_id="bench", policy=Policy(buckets=("all",)))
