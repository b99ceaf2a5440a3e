"""A participant's side of one attempt at a secure round.

A member checks everything it is told before it gives anything away: that its own keys are in the
cohort unchanged, that everybody's keys are signed by the identity that their id stands for, that
the cohort is large enough and the threshold above two thirds of it, that at least `threshold`
delivered, and that at least as many members signed the very list of survivors that it signed
itself. It signs one list and reveals once.

Masks, sealed shares and signatures are bound to the whole cohort as this member was shown it: with
members that were shown another one it has nothing in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from folkmoot.federated.keystream import derive_key
from folkmoot.federated.secure import shamir
from folkmoot.federated.secure.masks import Mask, agree, pair_mask, public_key, self_mask
from folkmoot.federated.secure.messages import (
    Cohort,
    Confirmation,
    Confirmations,
    Keys,
    Reveal,
    Shares,
    Survivors,
    Unopened,
    encode,
)

#: Whether an id stands for an Ed25519 key, as far as the participant knows.
KnownIdentity = Callable[[str, bytes], bool]
#: Every sealing key seals one message.
NONCE = bytes(12)


class Distrust(ValueError):
    """The coordinator, or somebody in the cohort, did not keep to the protocol; we stop here."""


class Demands(NamedTuple):
    """What a member asks of a cohort: its least size and its least threshold."""

    least_cohort: int = 3
    least_threshold: int = 0


USUAL = Demands()


class ParticipantAttempt:
    """One participant in one attempt. Methods are called once each, in this order."""

    def __init__(
        self,
        own: str,
        identity: Ed25519PrivateKey,
        context: str,
        randomness: shamir.Randomness,
        known: KnownIdentity,
        demands: Demands = USUAL,
    ) -> None:
        self._demands = demands
        self.own, self._context, self._known = own, context, known
        self._identity, self._randomness = identity, randomness
        self._sealing, self._masking, self._seed = (randomness(32) for _ in range(3))
        self._cohort: Mapping[str, Keys] = {}
        self._threshold = 0
        self._dealers = frozenset[str]()
        self._opened: dict[str, tuple[bytes, bytes]] = {}
        self._survivors = frozenset[str]()
        self._revealed = False

    @property
    def honest(self) -> int:
        """How many who are honest reveal at the least, when fewer than a third are not."""
        return self._threshold - most_colluders(len(self._cohort))

    def keys(self) -> Keys:
        """Step 1: our keys for this attempt."""
        public = (public_key(self._sealing), public_key(self._masking), commitment(self._seed))
        signature = self._identity.sign(signed_text(self._context, self.own, *public))
        return Keys(*public, self._identity.public_key().public_bytes_raw(), signature)

    def shares(self, cohort: Cohort) -> Shares:
        """Step 2: check the cohort and deal our seed and mask key to everybody in it."""
        self._check(cohort)
        self._context = bound_context(self._context, cohort)
        self._cohort, self._threshold = cohort.keys, cohort.threshold
        holders = sorted(cohort.keys)
        dealt = zip(
            shamir.deal(self._seed, cohort.threshold, len(holders), self._randomness),
            shamir.deal(self._masking, cohort.threshold, len(holders), self._randomness),
            strict=True,
        )
        sealed = {
            holder: self._seal(holder, seed + masking)
            for holder, (seed, masking) in zip(holders, dealt, strict=True)
        }
        return Shares(sealed)

    def masks(self, received: Shares) -> list[Mask]:
        """Step 3: open the shares dealt to us; the masks for our update.

        Only those who dealt are masked against: the secrets of others could not be rebuilt. A box
        that does not open is its dealer's fault or the coordinator's; we go on without it, and
        when too few can open a dealer's boxes, it is the dealer that is left out.
        """
        if self.own not in received.sealed or not received.sealed.keys() <= self._cohort.keys():
            raise Distrust("the shares are not from this cohort")
        if len(received.sealed) < self._threshold:
            raise Distrust(f"{len(received.sealed)} dealt shares, fewer than {self._threshold}")
        self._dealers = frozenset(received.sealed)
        boxes = {dealer: self._open(dealer, box) for dealer, box in received.sealed.items()}
        self._opened = {dealer: shares for dealer, shares in boxes.items() if shares}
        pairs = [
            pair_mask(self.own, self._masking, other, self._cohort[other].masking, self._context)
            for other in sorted(self._dealers)
            if other != self.own
        ]
        return [self_mask(self._seed, self.own, self._context), *pairs]

    def unopened(self) -> Unopened:
        """Beside our update: whose shares we could not open."""
        return Unopened(sorted(self._dealers - self._opened.keys()))

    def confirm(self, survivors: Survivors) -> Confirmation:
        """Step 4: that we were told of these survivors. Of one list only."""
        if self._survivors:
            raise Distrust("asked to confirm survivors twice in one attempt")
        delivered = frozenset(survivors.delivered)
        if not delivered <= self._dealers or self.own not in delivered:
            raise Distrust("the survivors are not of this cohort, or we are missing from them")
        if len(delivered) < self._threshold:
            raise Distrust(f"{len(delivered)} delivered, fewer than {self._threshold}")
        self._survivors = delivered
        return Confirmation(self._identity.sign(self._confirmed_text()))

    def reveal(self, confirmations: Confirmations) -> Reveal:
        """Step 5: what unmasks the sum of the survivors, once enough confirmed them; no more."""
        if not self._survivors or self._revealed:
            raise Distrust("asked to reveal twice, or before the survivors are confirmed")
        if not confirmations.signatures.keys() <= self._survivors:
            raise Distrust("somebody confirmed who is not among the survivors")
        if len(confirmations.signatures) < self._threshold:
            count = len(confirmations.signatures)
            raise Distrust(f"{count} confirmed the survivors, fewer than {self._threshold}")
        text = self._confirmed_text()
        for id, signature in confirmations.signatures.items():
            verify_signature(self._cohort[id].identity, signature, text, f"the survivors by {id}")
        self._revealed = True
        opened = self._opened.items()
        return Reveal(
            {dealer: seed for dealer, (seed, _) in opened if dealer in self._survivors},
            {dealer: masking for dealer, (_, masking) in opened if dealer not in self._survivors},
        )

    def _confirmed_text(self) -> bytes:
        return confirmed_text(self._context, self._dealers, self._survivors)

    def _check(self, cohort: Cohort) -> None:
        if cohort.keys.get(self.own) != self.keys():
            raise Distrust("the cohort does not hold the keys we sent")
        count, least = len(cohort.keys), max(self._demands.least_cohort, 2)
        if count < least:
            raise Distrust(f"a cohort of {count} is too small: we ask for {least} (least_cohort)")
        # Up to two thirds, two groups could confirm different lists with the help of a third.
        if not least_threshold(count) <= cohort.threshold <= count:
            raise Distrust(f"a threshold of {cohort.threshold} of {count} is not above two thirds")
        if cohort.threshold < self._demands.least_threshold:
            asked = self._demands.least_threshold
            raise Distrust(f"a threshold of {cohort.threshold} is below ours, {asked}")
        for other, keys in cohort.keys.items():
            if not self._known(other, keys.identity):
                raise Distrust(f"{other} is not known to us by the identity it uses")
            verify(self._context, other, keys)

    def _seal(self, holder: str, shares: bytes) -> bytes:
        key = self._channel(self.own, holder, holder)
        return ChaCha20Poly1305(key).encrypt(NONCE, shares, None)

    def _open(self, dealer: str, box: bytes) -> tuple[bytes, bytes] | None:
        key = self._channel(dealer, self.own, dealer)
        try:
            shares = ChaCha20Poly1305(key).decrypt(NONCE, box, None)
        except InvalidTag:
            return None
        return shares[: shamir.SHARE_BYTES], shares[shamir.SHARE_BYTES :]

    def _channel(self, sender: str, receiver: str, other: str) -> bytes:
        """A key for the one message from `sender` to `receiver` in this attempt."""
        public = self._cohort[other].sealing
        return agree(self._sealing, public, "shares", self._context, sender, receiver)


def commitment(seed: bytes) -> bytes:
    """Says nothing about a seed, and fits no other."""
    return derive_key(seed, "commitment")


def signed_text(context: str, own: str, *public: bytes) -> bytes:
    """What a member signs: its keys and commitment, for this attempt, under its own id."""
    head = f"folkmoot secure keys\n{context}\n{own}\n".encode()
    return head + b"".join(public)


def verify(context: str, own: str, keys: Keys) -> None:
    """Raise `Distrust` unless `keys` are signed by the identity they name."""
    text = signed_text(context, own, keys.sealing, keys.masking, keys.commitment)
    verify_signature(keys.identity, keys.signature, text, f"the keys of {own}")


def verify_signature(identity: bytes, signature: bytes, text: bytes, what: str) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(identity).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise Distrust(f"{what} are not signed by the identity that they should be") from None


def least_threshold(count: int) -> int:
    """The least that two groups of `count` cannot both reach, if fewer than a third help both."""
    return 2 * count // 3 + 1


def most_colluders(count: int) -> int:
    """How many of `count` may help the coordinator without harm to the others."""
    return -(-count // 3) - 1


def bound_context(context: str, cohort: Cohort) -> str:
    """The attempt's context, for exactly this cohort: its keys, identities and threshold."""
    return f"{context}/{sha256(encode(cohort)).hexdigest()}"


def confirmed_text(context: str, dealers: Iterable[str], survivors: Iterable[str]) -> bytes:
    """What a member signs of the survivors it was told; no two lists give the same."""
    lists = encode([sorted(dealers), sorted(survivors)])
    return f"folkmoot secure survivors\n{context}\n".encode() + sha256(lists).digest()


def attempt_context(run_id: str, round_: int, attempt: int) -> str:
    """Binds keys, shares and masks to one attempt at one round of one federation."""
    return f"{run_id}/{round_}/{attempt}"
