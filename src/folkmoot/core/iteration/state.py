"""Where a rank is, and what it knows. Frozen; changed by its machine only."""

from enum import StrEnum

import msgspec

from folkmoot.core.iteration.config import Rules
from folkmoot.core.iteration.record import Note, Record


class Phase(StrEnum):
    Restarting = "Restarting"  # takes a new incarnation and finds out where the others are
    Training = "Training"
    Ready = "Ready"  # done with its iteration; writes down that it has arrived
    Consensus = "Consensus"  # waits for the decision, or makes it
    Advance = "Advance"  # found a decision; wakes the others, as its winner may have died
    NewIteration = "NewIteration"  # knows the decision
    Stopped = "Stopped"


class Asked(StrEnum):
    """What the one open request to the store is for."""

    Nothing = ""
    World = "World"
    Older = "Older"  # whether an older process of this rank is alive
    OlderAgain = "OlderAgain"
    Incarnation = "Incarnation"
    Present = "Present"  # how things stand when it starts
    Birth = "Birth"
    Arrival = "Arrival"
    Decision = "Decision"  # waiting for it
    Everything = "Everything"  # the decision, all arrivals and all heartbeats
    Proposal = "Proposal"
    Wake = "Wake"


class RankState(msgspec.Struct, frozen=True):
    rules: Rules
    rank: int
    phase: Phase = Phase.Restarting
    asked: Asked = Asked.Nothing
    incarnation: int = 0
    heartbeat: bytes = b""  # this rank's key as it was seen while it started
    arrival: bytes = b""  # this rank's arrival as it stands in the store
    proposal: bytes = b""  # what it has proposed for its target
    register: bytes = b""  # the newest decision, exactly as it stands in the store
    record: Record | None = None  # the same, read
    target: int = 0  # the iteration it arrives for
    progress: int = 0
    since: int = 0  # when it began to wait
    silent: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()  # whom it was said to wait for
    look: bool = False  # whether it looks at everything before it waits
    everybody: tuple[Note, ...] = ()  # all ranks there are, when all of them were seen to arrive
    as_before: bool = False  # whether it waits to hear that everybody goes on as before
    deaf: bool = False  # whether it was woken for nothing
    done: bool = False  # whether the phase's own work is done
    stop: str = ""

    @property
    def iteration(self) -> int:
        """The newest that was decided; -1 before the first."""
        return self.record.iteration if self.record else -1

    def how_many_members(self) -> int:
        return len(self.record.members) if self.record else 0

    def how_many_expected(self) -> int:
        if self.record is None:
            return self.rules.world
        return len(self.record.members) + len(self.record.admit)

    def expected(self) -> tuple[int, ...]:
        """Who is waited for, if alive: those of the last decision, and those it admits."""
        if self.record is None:
            return tuple(range(self.rules.world))
        if not self.record.admit:
            return self.record.ranks
        return tuple(sorted({*self.record.ranks, *self.record.admit}))
