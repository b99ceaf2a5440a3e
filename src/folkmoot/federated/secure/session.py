"""The coordinator's side of one attempt at a secure round: collect, forward, unmask the sum.

Steps close one after the other: KEYS when the coordinator says so, SHARES when everybody still
expected has dealt, UPDATES when the round closes, REVEAL with the first `threshold` answers. Who is
no longer expected (lost, or too late) is left out with `without`. Fewer than the threshold at any
step is a `TooFew`: the attempt failed, and another may begin.

A session is not kept on disk: the sum does not depend on the masks, so a coordinator that restarted
begins another attempt and ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from math import ceil

from folkmoot.federated.secure import shamir
from folkmoot.federated.secure.masks import Mask, pair_mask, public_key, self_mask
from folkmoot.federated.secure.member import commitment, verify
from folkmoot.federated.secure.messages import (
    MAX_COHORT,
    BadMessage,
    Cohort,
    Keys,
    Reveal,
    Shares,
    Survivors,
)


class Step(IntEnum):
    KEYS, SHARES, UPDATES, REVEAL, DONE = range(5)


class TooFew(ValueError):
    """Too few are left, or told the truth: this attempt cannot end."""


def threshold_of(count: int, share: float) -> int:
    """How many of `count` must stay to the end: the share asked, and always a majority."""
    return min(count, max(ceil(count * share - 1e-9), count // 2 + 1))


class Session:
    """One attempt. `share` of the cohort must stay to the end."""

    def __init__(self, context: str, share: float) -> None:
        self.context, self._share = context, share
        self.step, self.threshold = Step.KEYS, 0
        self._expected: set[str] = set()
        self._keys: dict[str, Keys] = {}
        self._shares: dict[str, Shares] = {}
        self._survivors: tuple[str, ...] = ()
        self._reveals: dict[str, Reveal] = {}

    @property
    def members(self) -> frozenset[str]:
        """Who can still take part: whoever sent keys, and after SHARES whoever dealt."""
        return frozenset(self._keys if self.step <= Step.SHARES else self._shares)

    @property
    def waiting_for(self) -> frozenset[str]:
        """Who has yet to answer in this step."""
        answered: Mapping[str, object] = {}
        if self.step in (Step.SHARES, Step.REVEAL):
            answered = self._shares if self.step == Step.SHARES else self._reveals
        return frozenset(self._expected - answered.keys())

    def without(self, gone: Iterable[str]) -> None:
        """Stop waiting for these; what they gave is kept."""
        self._expected -= set(gone)
        self._advance()

    # What members send.

    def keys(self, id: str, keys: Keys) -> None:
        if self._once(Step.KEYS, id, self._keys, keys):
            verify(self.context, id, keys)
            self._keys[id] = keys

    def close_keys(self) -> None:
        """The cohort is complete."""
        if not 2 <= len(self._keys) <= MAX_COHORT:
            raise TooFew(f"{len(self._keys)} participants sent keys; expected 2 to {MAX_COHORT}")
        self.threshold = threshold_of(len(self._keys), self._share)
        self._expected = set(self._keys)
        self.step = Step.SHARES

    def shares(self, id: str, shares: Shares) -> None:
        if self._once(Step.SHARES, id, self._shares, shares):
            if shares.sealed.keys() != self._keys.keys():
                raise BadMessage("shares must be dealt to everybody in the cohort, once")
            self._shares[id] = shares
            self._advance()

    def delivered(self, ids: Iterable[str]) -> None:
        """The round closed with the updates of `ids`."""
        self._survivors = tuple(sorted(set(ids) & self._shares.keys()))
        self._expected = set(self._survivors)
        self._move(Step.REVEAL, len(self._survivors))

    def reveal(self, id: str, reveal: Reveal) -> None:
        # Beyond the threshold, answers are spares for false ones.
        step = Step.DONE if self.step == Step.DONE else Step.REVEAL
        if self._once(step, id, self._reveals, reveal):
            dropped = self._shares.keys() - set(self._survivors)
            if reveal.seeds.keys() != set(self._survivors) or reveal.masking.keys() != dropped:
                raise BadMessage("shares must be revealed for every dealer, of the kind asked")
            self._reveals[id] = reveal
            self._advance()

    # What they are answered.

    def cohort(self) -> Cohort:
        return Cohort(self.threshold, self._keys)

    def shares_for(self, id: str) -> Shares:
        """What everybody dealt to `id`."""
        return Shares({dealer: shares.sealed[id] for dealer, shares in self._shares.items()})

    def survivors(self) -> Survivors:
        return Survivors(list(self._survivors))

    # The end.

    def residue(self) -> list[Mask]:
        """What to add to the sum of the survivors' updates so that no mask is left.

        A secret that was rebuilt is checked against what its owner published, so a false share is
        noticed; while there are answers to spare, the others are tried without each one in turn.
        """
        error: Exception | None = None
        for givers in self._givers():
            try:
                return self._residue(givers)
            except ValueError as failed:
                error = error or failed
        raise TooFew(f"the shares that were revealed do not fit: {error}")

    def _givers(self) -> Iterator[Sequence[str]]:
        everybody = sorted(self._reveals)
        yield everybody[: self.threshold]
        for liar in everybody[: self.threshold]:
            others = [giver for giver in everybody if giver != liar]
            if len(others) >= self.threshold:
                yield others[: self.threshold]

    def _residue(self, givers: Sequence[str]) -> list[Mask]:
        numbers = {id: place for place, id in enumerate(sorted(self._keys), 1)}
        rebuild = shamir.Rebuild([numbers[giver] for giver in givers])

        def secret(kind: Callable[[Reveal], Mapping[str, bytes]], id: str) -> bytes:
            return rebuild.secret({numbers[g]: kind(self._reveals[g])[id] for g in givers})

        masks = []
        for id in self._survivors:
            seed = secret(lambda reveal: reveal.seeds, id)
            if commitment(seed) != self._keys[id].commitment:
                raise ValueError(f"the seed of {id} is not the one it committed to")
            key, sign = self_mask(seed, id, self.context)
            masks.append(Mask(key, -sign))
        for id in sorted(self._shares.keys() - set(self._survivors)):
            private = secret(lambda reveal: reveal.masking, id)
            if public_key(private) != self._keys[id].masking:
                raise ValueError(f"the mask key of {id} is not the one it published")
            # What the dropped one would have added is what the sum lacks.
            masks += [
                pair_mask(id, private, other, self._keys[other].masking, self.context)
                for other in self._survivors
            ]
        return masks

    def _once(self, step: Step, id: str, given: Mapping[str, object], message: object) -> bool:
        """Whether `message` is new and in time; the same one again is no error, another one is."""
        if id in given:
            if given[id] != message:
                raise BadMessage(f"{id} answered {step.name} before, differently")
            return False
        if self.step != step or (step > Step.KEYS and id not in self._expected):
            raise BadMessage(f"{id} is not expected to answer {step.name} in this attempt")
        return True

    def _advance(self) -> None:
        """Close steps that nobody is awaited in."""
        if self.step == Step.SHARES and not self.waiting_for:
            self._move(Step.UPDATES, len(self._shares))
        if self.step == Step.REVEAL and len(self._reveals) >= self.threshold:
            self.step = Step.DONE
        if self.step == Step.REVEAL and not self.waiting_for:
            self._move(Step.DONE, len(self._reveals))

    def _move(self, step: Step, left: int) -> None:
        if left < self.threshold:
            raise TooFew(
                f"{left} participants are left after step {self.step.name}; "
                f"unmasking needs {self.threshold}"
            )
        self.step = step
