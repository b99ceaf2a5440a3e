"""w + 1 with Folkmoot's SDK."""

import sys
from pathlib import Path

import numpy as np

from folkmoot.federated import ClientTls, Participant, Policy, join_federation


class PlusOne(Participant):
    def init_weights(self):
        return np.zeros(1, np.float32)

    def train_round(self, weights, epochs, epoch_base):
        return weights + 1, 10, {}


# With TLS, the authority to trust comes after the address.
tls = ClientTls(Path(sys.argv[2])) if len(sys.argv) > 2 else None
policy = Policy(buckets=("all",))
join_federation(PlusOne(), address=sys.argv[1], run_id="bench", tls=tls, policy=policy)
