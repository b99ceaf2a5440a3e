"""Which slots of the mailbox were taken. Pure.

Slots count from 1. All below `next` were taken or given up, but for the `holes`: claimed by senders
whose letters were not there yet when later ones were taken. A hole keeps nobody waiting, and is
given up when it stays empty.
"""

from collections.abc import Sequence
from itertools import pairwise

import msgspec

# How far ahead of `next` a slot can be: a counter that shows more is not to be believed.
WINDOW = 4096
MAX_HOLES = 1024


class Mailbox(msgspec.Struct, frozen=True, array_like=True):
    next: int = 1
    holes: tuple[int, ...] = ()

    def open_slots(self, claimed: int) -> list[int]:
        """The slots that may hold letters not yet taken, when `claimed` were handed out."""
        return [*self.holes, *range(self.next, min(claimed + 1, self.next + WINDOW))]

    def is_open(self, slot: int) -> bool:
        return self.next <= slot < self.next + WINDOW or slot in self.holes

    def believes(self, claimed: int) -> bool:
        """Whether a counter can be right that says so."""
        return self.next - 1 <= claimed < self.next + WINDOW

    def without(self, taken: Sequence[int], given_up: Sequence[int] = ()) -> "Mailbox":
        """The mailbox after these slots; raises `ValueError` for those that cannot be meant."""
        if any(a >= b for a, b in pairwise(taken)):
            raise ValueError("its letters are not in the order of their slots")
        done = {*taken, *given_up}
        if len(done) < len(taken) + len(given_up):
            raise ValueError("it takes a slot and gives it up")
        known = set(self.holes)
        for slot in done - known:
            if not self.next <= slot < self.next + WINDOW:
                raise ValueError(f"slot {slot} is not open")
        after = max(self.next, *(slot + 1 for slot in done)) if done else self.next
        holes = sorted(known.union(range(self.next, after)) - done)
        if len(holes) > MAX_HOLES:
            raise ValueError(f"it leaves more than {MAX_HOLES} holes")
        return Mailbox(after, tuple(holes))
