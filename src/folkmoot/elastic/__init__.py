"""The global iteration for any training loop: ranks may die, restart and come late."""

from folkmoot.elastic.errors import (
    Fenced,
    Garbage,
    IterationError,
    RankTaken,
    StoreEmpty,
    StoreLost,
    WorldMismatch,
)
from folkmoot.elastic.global_iteration import GlobalIteration

__all__ = [
    "Fenced",
    "Garbage",
    "GlobalIteration",
    "IterationError",
    "RankTaken",
    "StoreEmpty",
    "StoreLost",
    "WorldMismatch",
]
