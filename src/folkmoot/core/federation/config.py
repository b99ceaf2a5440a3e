"""What the owner of a federation decides about its rounds, and the sizes that follow from it.

Times are in seconds. Fractions are taken as the decimal the owner wrote: 3 participants at a
fraction of 0.1 need 30 connections, not the 29 that binary floating point makes of it.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import cache
from math import ceil, floor
from typing import Literal

import msgspec

from folkmoot.core.config import Broken

MAX_PARTICIPANTS = 65_536
Controller = Literal["random", "ordered", "all"]
Scalar = bool | int | float | str


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How rounds are made: who must be there, who is selected, when a round closes."""

    # Rounds in all. With no initial weights, round 0 is the initial round: it counts as one.
    rounds: int
    # Epochs that a participant trains in a round.
    epochs: int = 1
    # No round closes with fewer good updates than this, or than its quorum when that is below 1.
    min_participants: int = 1
    # Share of the connected participants that a round needs.
    fraction_participants: float = 1.0
    # Participants above the number needed to begin that may connect, to step in for drop-outs.
    spares: int = 0
    controller: Controller = "random"
    # 1.3 selects 30 % more than a round needs; the first to deliver count.
    over_selection: float = 1.0
    # Share of the needed updates with which a round may close when its deadline has passed or
    # nobody is left to wait for.
    quorum: float = 1.0
    # With 0, deadlines follow the round itself: see straggler_time.
    round_deadline: float = 0.0
    # With no round_deadline: once half of the updates that a round needs are there, the others get
    # three times as long again, and so many seconds at the least; then the round goes on without
    # them. 0 waits for ever.
    straggler_time: float = 60.0
    # A participant is lost when it is silent for heartbeat_time + heartbeat_timeout.
    heartbeat_time: float = 10.0
    heartbeat_timeout: float = 5.0
    # Bad updates after which a participant is expelled; rounds in a row without an update in time
    # after which it has to register again. 0 does neither.
    max_strikes: int = 3
    # Above 0, rounds are asynchronous (FedBuff): a new global model is made of every `buffer`
    # updates, each at most `max_staleness` models old; or when all who are connected delivered.
    buffer: int = 0
    max_staleness: int = 0
    # Evaluated models in a row that are not better than the best by `min_improvement`, after which
    # it is over; 0 goes on to the last round.
    stop_after: int = 0
    min_improvement: float = 0.0
    # Properties that a participant must have to take part: this value, or this number at least.
    require: dict[str, Scalar] = {}

    @property
    def asynchronous(self) -> bool:
        return self.buffer > 0

    @property
    def min_connected(self) -> int:
        """How many must be connected before a round begins.

        ⌊min / fraction⌋ is enough: n > min/fraction − 1 gives n·fraction > min − 1, and a round
        needs ⌈n·fraction⌉ of n.
        """
        return max(1, floor(self.min_participants / _exact(self.fraction_participants)))

    @property
    def capacity(self) -> int:
        return self.min_connected + self.spares

    @property
    def expiry_ms(self) -> int:
        return round((self.heartbeat_time + self.heartbeat_timeout) * 1000)

    def patience_ms(self, elapsed: int) -> int:
        """How long the slower half of a round gets when the faster one took `elapsed`; 0: for ever.

        Three times as long: a machine that is four times slower than most has a place in a round.
        """
        follows = self.straggler_time > 0 and not self.round_deadline and not self.asynchronous
        return max(3 * elapsed, round(self.straggler_time * 1000)) if follows else 0

    def goal(self, connected: int) -> int:
        """How many good updates close a round that begins with `connected` participants."""
        if self.asynchronous:
            return self.buffer
        return min(max(ceil(connected * _exact(self.fraction_participants)), 1), connected)

    def selection(self, goal: int) -> int:
        """How many are asked in order to get `goal` updates."""
        return ceil(goal * _exact(self.over_selection))

    def enough(self, goal: int, given_up: int) -> int:
        """How many good updates suffice when there is nobody left to wait for.

        Whoever delivered a bad update has answered, and who was late had its time, so neither is
        waited for again; but a round never closes below the quorum of `min_participants`.
        """
        quorum = _exact(self.quorum)
        least = max(ceil(self.min_participants * quorum), 1)
        if self.asynchronous:
            return min(goal, least)
        return min(goal, max(ceil(goal * quorum) - given_up, least))

    def lacking(self, properties: Mapping[str, Scalar]) -> str:
        """What a participant with these properties lacks to take part, or nothing."""
        for name, wanted in self.require.items():
            had = properties.get(name)
            if not _satisfies(had, wanted):
                least = "" if isinstance(wanted, bool | str) else " or more"
                return f"{name} must be {wanted!r}{least}; the participant says {had!r}"
        return ""

    def rules(self) -> Iterator[Broken]:
        if not 0 <= self.stop_after < 2**31:
            yield Broken("stop_after", "must be 0 (never) or more")
        if not self.min_improvement >= 0:
            yield Broken("min_improvement", "must be 0 or more")
        yield from self._counts()
        yield from self._shares()
        for name in ("heartbeat_time", "heartbeat_timeout"):
            if not 0 < getattr(self, name) < 4e6:
                yield Broken(name, "must be more than 0 and less than 4,000,000 seconds")
        for name in ("round_deadline", "straggler_time"):
            if not 0 <= getattr(self, name) < 4e6:
                yield Broken(name, "must be from 0 (none) to 4,000,000 seconds")

    def _counts(self) -> Iterator[Broken]:
        for name, least in (("rounds", 1), ("epochs", 0), ("min_participants", 1), ("spares", 0)):
            if not least <= getattr(self, name) < 2**31:
                yield Broken(name, f"must be from {least} to {2**31 - 1}")
        for name in ("max_strikes", "buffer", "max_staleness"):
            if not 0 <= getattr(self, name) <= MAX_PARTICIPANTS:
                yield Broken(name, f"must be from 0 to {MAX_PARTICIPANTS}")
        if self.max_staleness and not self.buffer:
            yield Broken("max_staleness", "needs buffer: only asynchronous rounds take old updates")
        if 0 < self.buffer < self.min_participants:
            yield Broken("buffer", f"must be min_participants ({self.min_participants}) or more")

    def _shares(self) -> Iterator[Broken]:
        for name in ("fraction_participants", "quorum"):
            if not 0 < getattr(self, name) <= 1:
                yield Broken(name, "must be more than 0 and at most 1")
        if not 1 <= self.over_selection <= 100:
            yield Broken("over_selection", "must be from 1 to 100")
        if 0 < self.fraction_participants <= 1 and self.capacity > MAX_PARTICIPANTS:
            yield Broken(
                "min_participants",
                f"with fraction_participants and spares means {self.capacity} connections; "
                f"at most {MAX_PARTICIPANTS}",
            )


def _satisfies(had: Scalar | None, wanted: Scalar) -> bool:
    if isinstance(wanted, bool | str) or isinstance(had, bool | str) or had is None:
        return type(had) is type(wanted) and had == wanted
    return had >= wanted


@cache
def _exact(share: float) -> Fraction:
    """The decimal as it is written: 0.1 is one tenth."""
    return Fraction(repr(share))
