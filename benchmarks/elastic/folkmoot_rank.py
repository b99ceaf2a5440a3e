"""A rank that follows the global iteration; `folkmoot elastic run` would set its environment."""

import os
import signal

import torch.distributed as dist
from loop import Loop

from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.iteration import keys
from folkmoot.core.iteration.record import read_record
from folkmoot.elastic import GlobalIteration
from folkmoot.elastic.torch import ElasticTraining

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dies_at = int(os.environ.get("BENCH_WINNER_DIES_AT", -1))
loop = Loop(rank)


class DyingStore:
    """Kills this process between winning iteration `dies_at` and telling the others."""

    def __init__(self, store):
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def clone(self):
        return DyingStore(self._store.clone())

    def compare_set_then_set(self, key, expected, desired, others, value):
        found = self._store.compare_set(key, expected, desired)
        if key.endswith(keys.CONSENSUS) and found == desired:
            decided = read_record(desired, world)
            if decided.iteration == dies_at:
                loop.say("dies", rank, len(decided.members), 0)
                os.kill(os.getpid(), signal.SIGKILL)
        return self._store.compare_set_then_set(key, expected, desired, others, value)


store = None if dies_at < 0 else DyingStore(open_store(os.environ["FOLKMOOT_STORE"]))
with ElasticTraining(GlobalIteration(store), model=loop.model) as training:
    for attempt in training.steps(1_000_000):
        with attempt as step:
            total = loop.gradients()
            dist.all_reduce(total)
            loop.step(total / training.size)
        if training.step > step:
            loop.report(rank, training.size)
