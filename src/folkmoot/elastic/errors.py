"""Why a rank cannot go on: each reason a type, each message a sentence that says what to do."""

from folkmoot.core.iteration.messages import Reason, Stopped


class IterationError(Exception):
    """This process must not go on as its rank."""


class Fenced(IterationError):
    """A newer process of this rank lives."""


class RankTaken(IterationError):
    """An older process of this rank lives, and this one was told not to replace it."""


class WorldMismatch(IterationError):
    """The job in the store has another number of ranks."""


class StoreEmpty(IterationError):
    """The store has lost what it knew."""


class Garbage(IterationError):
    """Somebody else writes to the job's keys."""


class StoreLost(IterationError):
    """Nobody answers at the store, for longer than this rank waits."""


_TYPES = {
    Reason.Fenced: Fenced,
    Reason.RankTaken: RankTaken,
    Reason.WorldMismatch: WorldMismatch,
    Reason.StoreEmpty: StoreEmpty,
    Reason.Garbage: Garbage,
}


def error_of(stopped: Stopped) -> IterationError:
    return _TYPES.get(Reason(stopped.code), IterationError)(stopped.reason)
