"""The coordinator's side of one attempt at a secure round: collect, forward, unmask the sum.

Steps close one after the other: KEYS when the coordinator says so, SHARES when everybody still
expected has dealt, UPDATES when the round closed and those who delivered said whose shares they
could not open, CONFIRM when all of those signed the list of survivors, REVEAL when `threshold`
shares of every secret are there. Who is no longer expected (lost, or too late) is left out with
`without`. Fewer than the threshold at any step is a `TooFew`: the attempt failed, and another may
begin.

It is not kept on disk: the sum does not depend on the masks, so a coordinator that restarted begins
another attempt and ends with the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from math import ceil
from operator import attrgetter

from folkmoot.federated.secure import shamir
from folkmoot.federated.secure.masks import Mask, agree, pair_mask, public_key, self_mask
from folkmoot.federated.secure.messages import (
    MAX_COHORT,
    BadMessage,
    Cohort,
    Confirmation,
    Confirmations,
    Keys,
    Reveal,
    Shares,
    Survivors,
    Unopened,
)
from folkmoot.federated.secure.participant_attempt import (
    bound_context,
    commitment,
    confirmed_text,
    least_threshold,
    verify,
    verify_signature,
)

#: Any private key will do to tell a point of low order.
PROBE = b"\x01" * 32


class SecureStep(IntEnum):
    KEYS, SHARES, UPDATES, CONFIRM, REVEAL, DONE = range(6)


class TooFew(ValueError):
    """Too few are left, or told the truth: this attempt cannot end.

    `dealers` dealt shares that most of the cohort could not open: the attempt failed by them.
    """

    def __init__(self, reason: str, dealers: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.dealers = tuple(dealers)


def threshold_of(count: int, share: float) -> int:
    """How many of `count` must stay to the end: the share asked, and above two thirds."""
    return min(count, max(ceil(count * share - 1e-9), least_threshold(count)))


Kind = Callable[[Reveal], Mapping[str, bytes]]
SEEDS: Kind = attrgetter("seeds")
MASKING: Kind = attrgetter("masking")


def usable(keys: Keys) -> None:
    """Refuse the few public keys with which an honest member could agree on nothing."""
    for public in (keys.sealing, keys.masking):
        try:
            agree(PROBE, public)
        except ValueError:
            raise BadMessage(
                "a key is a point of low order, which no honest member makes"
            ) from None


def _choices(holders: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    """The first `count` of `holders`, then as many without each of those in turn."""
    yield holders[:count]
    for liar in holders[:count]:
        others = [holder for holder in holders if holder != liar]
        if len(others) >= count:
            yield others[:count]


class CoordinatorAttempt:
    """One attempt. `share` of the cohort must stay to the end, and it has `least` members."""

    def __init__(self, context: str, share: float, least: int = 3) -> None:
        self.context, self._share, self._least = context, share, max(least, 2)
        self._bound = ""
        self.step, self.threshold = SecureStep.KEYS, 0
        self._expected: set[str] = set()
        self._keys: dict[str, Keys] = {}
        self._shares: dict[str, Shares] = {}
        self._unopened: dict[str, Unopened] = {}
        self._survivors: tuple[str, ...] = ()
        self._confirmed: dict[str, Confirmation] = {}
        self._reveals: dict[str, Reveal] = {}
        self._numbers: dict[str, int] = {}

    @property
    def members(self) -> frozenset[str]:
        """Who can still take part: whoever sent keys, and after SHARES whoever dealt."""
        return frozenset(self._keys if self.step <= SecureStep.SHARES else self._shares)

    @property
    def waiting_for(self) -> frozenset[str]:
        """Who has yet to answer in this step."""
        answered: tuple[Mapping[str, object], ...] = (
            {},
            self._shares,
            self._unopened,
            self._confirmed,
            self._reveals,
            {},
        )
        return frozenset(self._expected - answered[self.step].keys())

    def without(self, gone: Iterable[str]) -> None:
        """Stop waiting for these; what they gave is kept."""
        self._expected -= set(gone)
        self._advance()

    # What members send.

    def keys(self, id: str, keys: Keys) -> None:
        if self._once(SecureStep.KEYS, id, self._keys, keys):
            verify(self.context, id, keys)
            usable(keys)
            self._keys[id] = keys

    def close_keys(self) -> None:
        """The cohort is complete."""
        if not self._least <= len(self._keys) <= MAX_COHORT:
            count = len(self._keys)
            raise TooFew(f"{count} participants sent keys; expected {self._least} to {MAX_COHORT}")
        self.threshold = threshold_of(len(self._keys), self._share)
        self._expected = set(self._keys)
        self._bound = bound_context(self.context, self.cohort())
        self._numbers = {id: place for place, id in enumerate(sorted(self._keys), 1)}
        self.step = SecureStep.SHARES

    def shares(self, id: str, shares: Shares) -> None:
        if self._once(SecureStep.SHARES, id, self._shares, shares):
            if shares.sealed.keys() != self._keys.keys():
                raise BadMessage("shares must be dealt to everybody in the cohort, once")
            self._shares[id] = shares
            self._advance()

    def unopened(self, id: str, unopened: Unopened) -> None:
        if id in self._shares and self.step == SecureStep.UPDATES:
            self._unopened[id] = unopened
            self._advance()

    def delivered(self, ids: Iterable[str]) -> None:
        """The round closed with the updates of `ids`.

        Before anybody reveals, everybody says whose shares it could not open: whoever revealed for
        one set of survivors will not for another, so a bad dealer must be found out first.
        """
        self._survivors = tuple(sorted(set(ids) & self._shares.keys()))
        if len(self._survivors) < self.threshold:
            raise TooFew(f"{len(self._survivors)} delivered; unmasking needs {self.threshold}")
        self._expected = set(self._survivors)
        self._advance()

    def confirm(self, id: str, confirmation: Confirmation) -> None:
        if self._once(SecureStep.CONFIRM, id, self._confirmed, confirmation):
            text = confirmed_text(self._bound, self._shares, self._survivors)
            verify_signature(self._keys[id].identity, confirmation.signature, text, "survivors")
            self._confirmed[id] = confirmation
            self._advance()

    def reveal(self, id: str, reveal: Reveal) -> None:
        # Beyond the threshold, answers are spares for false ones.
        step = SecureStep.DONE if self.step == SecureStep.DONE else SecureStep.REVEAL
        if self._once(step, id, self._reveals, reveal):
            asked = self._dropped()
            if not reveal.seeds.keys() <= {*self._survivors} or not reveal.masking.keys() <= asked:
                raise BadMessage("shares must be revealed of the kind asked for each dealer")
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

    def confirmations(self) -> Confirmations:
        return Confirmations({id: given.signature for id, given in self._confirmed.items()})

    # The end.

    def residue(self) -> list[Mask]:
        """What to add to the sum of the survivors' updates so that no mask is left."""
        masks = []
        for id in self._survivors:
            seed = self._secret(id, SEEDS, commitment, self._keys[id].commitment)
            key, sign = self_mask(seed, id, self._bound)
            masks.append(Mask(key, -sign))
        for id in sorted(self._dropped()):
            private = self._secret(id, MASKING, public_key, self._keys[id].masking)
            # What the dropped one would have added is what the sum lacks.
            masks += [
                pair_mask(id, private, other, self._keys[other].masking, self._bound)
                for other in self._survivors
            ]
        return masks

    def _secret(
        self, id: str, kind: Kind, derive: Callable[[bytes], bytes], published: bytes
    ) -> bytes:
        """A dealer's secret, checked against what it published, so a false share is noticed.

        While there are shares to spare, the others are tried without each one in turn.
        """
        shares = {
            self._numbers[giver]: kind(reveal)[id]
            for giver, reveal in sorted(self._reveals.items())
            if id in kind(reveal)
        }
        for holders in _choices(sorted(shares), self.threshold):
            try:
                secret = shamir.rebuild({holder: shares[holder] for holder in holders})
            except ValueError:
                continue  # they do not even belong to one secret
            if derive(secret) == published:
                return secret
        raise TooFew(f"the shares of {id} that were revealed do not give what it published")

    def _dropped(self) -> set[str]:
        return self._shares.keys() - {*self._survivors}

    def _lacking(self) -> list[str]:
        """Dealers of whose secret fewer than the threshold have given a share."""
        given = Counter(id for r in self._reveals.values() for id in (*r.seeds, *r.masking))
        return [id for id in self._shares if given[id] < self.threshold]

    def _once(
        self, step: SecureStep, id: str, given: Mapping[str, object], message: object
    ) -> bool:
        """Whether `message` is new and in time; the same one again is no error, another one is."""
        if id in given:
            if given[id] != message:
                raise BadMessage(f"{id} answered {step.name} before, differently")
            return False
        if self.step != step or (step > SecureStep.KEYS and id not in self._expected):
            raise BadMessage(f"{id} is not expected to answer {step.name} in this attempt")
        return True

    def _advance(self) -> None:
        """Close steps that nobody is awaited in."""
        if self.step == SecureStep.SHARES and not self.waiting_for:
            self._move(SecureStep.UPDATES, len(self._shares))
            self._expected = set()  # the round's own rules say how long updates are waited for
        if self.step == SecureStep.UPDATES and self._survivors and not self.waiting_for:
            self._check_openers()
            self._expected = self._unopened.keys() & {*self._survivors}
            self._move(SecureStep.CONFIRM, len(self._expected))
        if self.step == SecureStep.CONFIRM and not self.waiting_for:
            self._expected = set(self._confirmed)
            self._move(SecureStep.REVEAL, len(self._expected))
        if self.step == SecureStep.REVEAL and not self._lacking():
            self.step = SecureStep.DONE
        if self.step == SecureStep.REVEAL and not self.waiting_for:
            raise TooFew(f"too few revealed their shares of {', '.join(self._lacking())}")

    def _check_openers(self) -> None:
        here = [self._unopened[id].dealers for id in self._survivors if id in self._unopened]
        bad = Counter(dealer for dealers in here for dealer in dealers)
        dealers = [id for id in self._shares if len(here) - bad[id] < self.threshold and bad[id]]
        if dealers:
            raise TooFew(f"too few could open the shares dealt by {', '.join(dealers)}", dealers)

    def _move(self, step: SecureStep, left: int) -> None:
        if left < self.threshold:
            raise TooFew(
                f"{left} participants are left after step {self.step.name}; "
                f"unmasking needs {self.threshold}"
            )
        self.step = step
