"""Which results of a round are not what somebody trained: found by comparing them with each other.

Everybody decodes the same payloads, and each comes with a sketch: a short vector whose cosine with
another is that of the payloads. So all witnesses that hold the same results come to the same
conclusions, by these rules, and attest none of what they screen:

- **Copies.** Two results of a round, or one and its sender's earlier ones, that are far more alike
  than results of this round are: eight times nearer than the median pair. Of two, the later counts
  as the copy; whoever copies must have heard it first.
- **Energy.** More than 16 times the median, or none at all.
- **Direction.** A client's alignment is the cosine with the others' results that three fifths of
  them do not exceed, which liars that are fewer than two fifths cannot raise, however much they
  agree. Compared with the usual alignment: below minus a half is opposed to everybody, at once; who
  falls short of what is asked over several rounds trained less than the others, or nothing
  (`alignment.py`). A smaller share is noisier, and less is asked of it. Where honest results hardly
  agree themselves, nothing is concluded.

With fewer than three results there is no majority to compare with. Nobody is blamed for one
screened result; `standing.py` has what follows from many.
"""

from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from folkmoot.core.coordinator.assignment import Share, total
from folkmoot.core.coordinator.client.alignment import (
    FAINTEST,
    TOO_SHORT,
    Agreement,
    above_three_fifths,
    add_shortfall,
    relative_to_usual,
)

SUMS = 4096
SKETCH_BYTES = 4 + 2 * SUMS
# How much nearer than the median pair two results are that count as one.
NEARER = 8
LOUDEST = 16.0
OPPOSED = -0.5
# Earlier results of each sender that its next one is compared with; by their names, many more.
SKETCHES_KEPT, NAMES_KEPT = 4, 64
# In a large round everybody is compared with so many.
COMPARED = 64
Rows = NDArray[np.float32]


class Seen:
    """What is remembered of one sender."""

    def __init__(self) -> None:
        self.short = 0.0  # of what was asked of its alignment
        self.sketches: deque[Rows] = deque(maxlen=SKETCHES_KEPT)
        self.names: deque[bytes] = deque(maxlen=NAMES_KEPT)

    def anew(self) -> "Seen":
        """Without what it sent; what it fell short is remembered."""
        fresh = Seen()
        fresh.short = self.short
        return fresh


class ComparedResult:
    """A result as it is compared: the name of its bytes, and its sketch if the method makes one."""

    def __init__(self, sender: bytes, name: bytes, sketch: bytes) -> None:
        self.sender, self.name = sender, name
        self.sketched = len(sketch) == SKETCH_BYTES
        self.energy = float(np.frombuffer(sketch[:4], "<f4")[0]) if self.sketched else 0.0
        self.unit = _unit(sketch) if self.sketched else np.zeros(SUMS, np.float32)


def _unit(sketch: bytes) -> Rows:
    sums = np.frombuffer(sketch, "<i2", offset=4).astype(np.float32)
    length = np.sqrt(np.float32((sums * sums).sum(dtype=np.float64)))
    return sums / length if length else sums


class Screening:
    """The memory of one client, and what it concludes from it round by round."""

    def __init__(self) -> None:
        self.height = (-1, -1)  # epoch and height of the round that was judged last
        self._step = -1  # and its step
        self._seen: dict[bytes, Seen] = {}
        self._agreement = Agreement()

    def judge(
        self,
        where: tuple[int, int],
        step: int,
        arrivals: list[ComparedResult],
        shares: Mapping[bytes, Share],
    ) -> frozenset[bytes]:
        """The senders of a round whose results are screened; `arrivals` in the order they came."""
        if not shares:
            return frozenset()
        if step <= self._step:
            # The run went back to an earlier model: the same work may give the same results again.
            self._seen = {sender: seen.anew() for sender, seen in self._seen.items()}
        self.height, self._step = where, step
        if len(arrivals) < 3:
            return frozenset()
        screened = self._repeated(arrivals)
        told = [a for a in arrivals if a.sketched]
        if len(told) >= 3:
            screened |= self._compared(told, shares)
        self._remember(arrivals, len(shares))
        return frozenset(screened)

    def _repeated(self, arrivals: list[ComparedResult]) -> set[bytes]:
        """Whose bytes are another's, or its own of an earlier round. Where most are equal, as those
        of a model that learns nothing are, it is no sign."""
        first: dict[bytes, bytes] = {}
        for a in arrivals:
            first.setdefault(a.name, a.sender)
        if 2 * len(first) <= len(arrivals):
            return set()
        again = {a.sender for a in arrivals if first[a.name] != a.sender}
        return again | {a.sender for a in arrivals if a.name in self._of(a.sender).names}

    def _compared(self, told: list[ComparedResult], shares: Mapping[bytes, Share]) -> set[bytes]:
        units = np.stack([a.unit for a in told])
        others = np.linspace(0, len(told) - 1, min(len(told), COMPARED)).astype(int)
        cosines = units @ units[others].T
        same = others[None, :] == np.arange(len(told))[:, None]
        near = 1 - (1 - float(np.median(cosines[~same]))) / NEARER
        earlier = others[None, :] < np.arange(len(told))[:, None]
        copies = ((cosines > near) & earlier).any(axis=1)
        copies |= np.array([self._said_before(a, near) for a in told])
        return {
            told[i].sender
            for i in np.flatnonzero(
                copies | _loud(told) | self._astray(told, cosines, same, copies[others], shares)
            )
        }

    def _said_before(self, a: ComparedResult, near: float) -> bool:
        return any(float(a.unit @ old) > near for old in self._of(a.sender).sketches)

    def _astray(
        self,
        told: list[ComparedResult],
        cosines: Rows,
        same: NDArray[np.bool_],
        copies: NDArray[np.bool_],
        shares: Mapping[bytes, Share],
    ) -> NDArray[np.bool_]:
        """Whose direction is not everybody's; copies are not asked."""
        astray = np.zeros(len(told), bool)
        usable = ~same & ~copies[None, :]
        if usable.sum(axis=1).min() < 2:
            return astray
        aligned = np.array(
            [above_three_fifths(row[use]) for row, use in zip(cosines, usable, strict=True)]
        )
        if float(np.median(aligned)) < FAINTEST:
            return astray
        relative = relative_to_usual(aligned)
        limit = self._agreement.asked(aligned)
        samples = [total(shares[a.sender]) for a in told]
        usual = float(np.median(samples))
        for i, a in enumerate(told):
            asked, seen = limit * min(1.0, float(np.sqrt(samples[i] / usual))), self._of(a.sender)
            seen.short = add_shortfall(seen.short, asked, float(relative[i]))
            astray[i] = relative[i] < OPPOSED or seen.short >= TOO_SHORT
        return astray

    def _of(self, sender: bytes) -> Seen:
        return self._seen.setdefault(sender, Seen())

    def _remember(self, arrivals: list[ComparedResult], clients: int) -> None:
        for a in arrivals:
            seen = self._seen.pop(a.sender, None) or Seen()
            seen.names.append(a.name)
            if a.sketched:
                seen.sketches.append(a.unit)
            self._seen[a.sender] = seen  # the last heard are the last forgotten
        while len(self._seen) > 2 * clients + len(arrivals):
            del self._seen[next(iter(self._seen))]


def _loud(told: list[ComparedResult]) -> NDArray[np.bool_]:
    energies = np.array([a.energy for a in told])
    usual = float(np.sort(energies)[(len(energies) - 1) // 2])
    # Written so that what is not a number is too loud.
    loud: NDArray[np.bool_] = ~(energies <= LOUDEST * usual) | ((energies == 0) & (usual > 0))
    return loud
