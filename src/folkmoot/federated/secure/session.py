"""The coordinator's side of one attempt at a secure round: it collects, forwards, and unmasks the
sum.

Steps close one after the other: KEYS, SHARES, UPDATES, REVEAL. A step closes when everybody still
expected has answered; who is no longer expected (lost, or too late) is left out with `without`.
Fewer than the threshold at any step is a `TooFew`: the attempt failed, and another may begin.

Nothing here is kept on disk: the sum does not depend on the masks, so a coordinator that restarted
begins another attempt and ends with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from math import ceil

from folkmoot.federated.secure import shamir
from folkmoot.federated.secure.masks import Mask, pair_mask, public_key, self_mask
from folkmoot.federated.secure.member import verify
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
    """Fewer than the threshold are left: this attempt cannot end."""


def threshold_of(count: int, share: float) -> int:
    """How many of `count` must stay to the end: the share asked, and always a majority."""
    return min(count, max(ceil(count * share - 1e-9), count // 2 + 1))


class Session:
    """One attempt with the participants `expected` of it."""

    def __init__(self, context: str, expected: Iterable[str], share: float) -> None:
        self.context, self._share = context, share
        self.step = Step.KEYS
        self._expected = set(expected)
        self.threshold = threshold_of(len(self._expected), share)
        self._keys: dict[str, Keys] = {}
        self._shares: dict[str, Shares] = {}
        self._survivors: tuple[str, ...] = ()
        self._reveals: dict[str, Reveal] = {}
        if not 2 <= len(self._expected) <= MAX_COHORT:
            raise TooFew(f"{len(self._expected)} participants; expected 2 to {MAX_COHORT}")

    @property
    def waiting_for(self) -> frozenset[str]:
        """Who has yet to answer in this step."""
        answered = (self._keys, self._shares, {}, self._reveals, {})[self.step]
        return frozenset(self._expected - answered.keys())

    def without(self, gone: Iterable[str]) -> None:
        """Stop waiting for these; what they gave is kept."""
        self._expected -= set(gone)
        self._advance()

    def keys(self, id: str, keys: Keys) -> None:
        if self._once(Step.KEYS, id, self._keys, keys):
            verify(self.context, id, keys)
            self._keys[id] = keys
            self._advance()

    def shares(self, id: str, shares: Shares) -> None:
        if self._once(Step.SHARES, id, self._shares, shares):
            if shares.sealed.keys() != self._keys.keys():
                raise BadMessage("shares must be dealt to everybody in the cohort, once")
            self._shares[id] = shares
            self._advance()

    def delivered(self, ids: Sequence[str]) -> None:
        """The round closed with the updates of `ids`."""
        if self.step != Step.UPDATES:
            raise ValueError(f"the round closed in step {self.step.name}")
        self._survivors = tuple(sorted(set(ids) & self._shares.keys()))
        self._expected &= set(self._survivors)
        self._move(Step.REVEAL, len(self._survivors))
        self._advance()

    def reveal(self, id: str, reveal: Reveal) -> None:
        if self.step == Step.DONE and id in self._survivors:
            return  # enough answered before it
        if self._once(Step.REVEAL, id, self._reveals, reveal):
            dropped = self._shares.keys() - set(self._survivors)
            if reveal.seeds.keys() != set(self._survivors) or reveal.masking.keys() != dropped:
                raise BadMessage("shares must be revealed for every dealer, of the kind asked")
            self._reveals[id] = reveal
            self._advance()

    def cohort(self) -> Cohort:
        """The answer to KEYS."""
        return Cohort(self.threshold, self._keys)

    def shares_for(self, id: str) -> Shares:
        """The answer to SHARES: what everybody dealt to `id`."""
        return Shares({dealer: shares.sealed[id] for dealer, shares in self._shares.items()})

    def survivors(self) -> Survivors:
        """The answer to UPDATES."""
        return Survivors(list(self._survivors))

    def dealers(self) -> frozenset[str]:
        """Who may deliver an update in this attempt."""
        return frozenset(self._shares)

    def residue(self) -> list[Mask]:
        """What to add to the sum of the survivors' updates so that no mask is left.

        Raises `TooFew` when a rebuilt secret is not the one that was dealt: somebody lied.
        """
        numbers = {id: place for place, id in enumerate(sorted(self._keys), 1)}
        givers = sorted(self._reveals)[: self.threshold]
        rebuild = shamir.Rebuild([numbers[giver] for giver in givers])

        def secret(kind: str, dealer: str) -> bytes:
            shares = {numbers[g]: getattr(self._reveals[g], kind)[dealer] for g in givers}
            try:
                return rebuild.secret(shares)
            except ValueError as error:
                raise TooFew(f"the secret of {dealer} cannot be rebuilt: {error}") from None

        own = [self_mask(secret("seeds", id), id, self.context) for id in self._survivors]
        masks = [Mask(mask.key, -mask.sign) for mask in own]
        for dropped in sorted(self._shares.keys() - set(self._survivors)):
            private = secret("masking", dropped)
            if public_key(private) != self._keys[dropped].masking:
                raise TooFew(f"the shares of {dropped}'s mask key do not give its mask key")
            # What the dropped one would have added is what the sum lacks.
            masks += [
                pair_mask(dropped, private, id, self._keys[id].masking, self.context)
                for id in self._survivors
            ]
        return masks

    def _once(self, step: Step, id: str, given: Mapping[str, object], message: object) -> bool:
        """Whether `message` is new and in time; the same one again is no error, another one is."""
        if id in given:
            if given[id] != message:
                raise BadMessage(f"{id} answered {step.name} before, differently")
            return False
        if self.step != step or id not in self._expected:
            raise BadMessage(f"{id} is not expected to answer {step.name} in this attempt")
        return True

    def _advance(self) -> None:
        """Close steps that nobody is awaited in."""
        if self.step == Step.KEYS and not self.waiting_for:
            self._move(Step.SHARES, len(self._keys))
        if self.step == Step.SHARES and not self.waiting_for:
            self._move(Step.UPDATES, len(self._shares))
        if self.step == Step.REVEAL:
            if len(self._reveals) >= self.threshold:
                self.step = Step.DONE
            elif not self.waiting_for:
                self._move(Step.DONE, len(self._reveals))

    def _move(self, step: Step, left: int) -> None:
        if left < self.threshold:
            raise TooFew(
                f"{left} participants are left after step {self.step.name}; "
                f"unmasking needs {self.threshold}"
            )
        self.step = step
