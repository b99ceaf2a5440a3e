"""A rank that follows the global iteration; `folkmoot elastic run` would set its environment."""

import os
import signal
import time

import torch.distributed as dist
from loop import Loop

from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.iteration import keys
from folkmoot.core.iteration.record import read_record
from folkmoot.elastic import GlobalIteration
from folkmoot.elastic.torch import ElasticTraining

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dies_from = int(os.environ.get("BENCH_WINNER_DIES_FROM", -1))
dies_after = float(os.environ.get("BENCH_WINNER_DIES_AFTER", 0))
loop = Loop(rank)


class DyingStore:
    """Kills this process between winning an iteration and telling the others.

    The first that it wins with everybody `dies_after` seconds after one from `dies_from` on.
    """

    def __init__(self, store):
        self._store = store
        self._since = None

    def __getattr__(self, name):
        return getattr(self._store, name)

    def clone(self):
        return DyingStore(self._store.clone())

    def compare_set_then_set(self, key, expected, desired, others, value):
        found = self._store.compare_set(key, expected, desired)
        if key.endswith(keys.CONSENSUS) and found == desired:
            self._won(read_record(desired, world))
        return self._store.compare_set_then_set(key, expected, desired, others, value)

    def _won(self, decided):
        if decided.iteration < dies_from or len(decided.members) < world:
            return  # too early, or somebody died already
        if self._since is None:
            self._since = time.monotonic()
        if time.monotonic() - self._since >= dies_after:
            loop.say("dies", rank, len(decided.members), 0)
            os.kill(os.getpid(), signal.SIGKILL)


store = None if dies_from < 0 else DyingStore(open_store(os.environ["FOLKMOOT_STORE"]))
with ElasticTraining(GlobalIteration(store), model=loop.model) as training:
    for attempt in training.steps(1_000_000):
        with attempt as step:
            total = loop.gradients()
            dist.all_reduce(total)
            loop.step(total / training.size)
        if training.step > step:
            loop.report(rank, training.size)
