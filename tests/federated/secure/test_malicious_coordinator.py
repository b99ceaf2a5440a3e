"""A coordinator that lies, with colluders among the members: no honest member's update is unmasked.

The coordinator here is the attacker. It routes messages as it likes, and its colluders give it all
they know and sign whatever it wants. It has unmasked a member when it can rebuild both that one's
seed and its mask key; the difference of two sums over lists that differ by one member is the same.
"""

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from folkmoot.federated.model_file.layout import ArrayMeta
from folkmoot.federated.participant.known import Known
from folkmoot.federated.participant.secure_delivery import SecureDelivery
from folkmoot.federated.secure import shamir
from folkmoot.federated.secure.coordinator_attempt import threshold_of
from folkmoot.federated.secure.masks import Mask, Masker, pair_mask, self_mask
from folkmoot.federated.secure.messages import Cohort, Confirmations, Shares, Survivors
from folkmoot.federated.secure.participant_attempt import (
    Demands,
    Distrust,
    ParticipantAttempt,
    attempt_context,
    bound_context,
    confirmed_text,
    least_threshold,
    most_colluders,
)
from folkmoot.federated.wire import RequestRefused

LAYOUT = {"w": ArrayMeta("I64", (8,))}
VICTIM = "p00"


class Attack:
    """`count` members, of whom the last `colluders` help; everybody dealt shares."""

    def __init__(self, count: int, colluders: int, attempt: int = 1) -> None:
        self.ids = [f"p{index:02}" for index in range(count)]
        self.honest, self.helpers = self.ids[: count - colluders], self.ids[count - colluders :]
        self.keys = {
            id: Ed25519PrivateKey.from_private_bytes(id.encode() * 10 + b"xx") for id in self.ids
        }
        self.public = {id: key.public_key().public_bytes_raw() for id, key in self.keys.items()}
        self.context = attempt_context("run", 3, attempt)
        self.members = {id: self.member(id, Demands(2), attempt) for id in self.ids}
        self.cohort = Cohort(
            threshold_of(count, 2 / 3), {id: member.keys() for id, member in self.members.items()}
        )
        self.seeds: dict[str, bytes] = {}
        self.masking: dict[str, bytes] = {}
        self.uploads: dict[str, np.ndarray] = {}

    def member(self, id: str, demands: Demands, attempt: int = 1) -> ParticipantAttempt:
        randomness = Random(f"{id}{attempt}").randbytes
        return ParticipantAttempt(id, self.keys[id], self.context, randomness, self.known, demands)

    def known(self, id: str, public: bytes) -> bool:
        return self.public.get(id) == public

    def exchange(self) -> None:
        """Shares and uploads, as the protocol has it."""
        dealt = {id: member.shares(self.cohort) for id, member in self.members.items()}
        for id, member in self.members.items():
            boxes = {dealer: shares.sealed[id] for dealer, shares in dealt.items()}
            words = np.full(8, self.ids.index(id) + 7, np.uint64)
            Masker(member.masks(Shares(boxes)), LAYOUT).add("w", 0, words)
            self.uploads[id] = words
        for id in self.helpers:  # they keep nothing back
            seed, masking = self.members[id]._opened[VICTIM]
            self.seeds[id], self.masking[id] = seed, masking

    def signature(self, id: str, survivors: Any) -> bytes:
        """What a colluder signs: anything."""
        bound = bound_context(self.context, self.cohort)
        return self.keys[id].sign(confirmed_text(bound, self.ids, survivors))

    def two_lists(self, told: dict[str, frozenset[str]]) -> None:
        """Tell each honest member its own list, collect what they confirm, ask all to reveal."""
        signed: dict[frozenset[str], dict[str, bytes]] = {}
        for id, survivors in told.items():
            try:
                confirmation = self.members[id].confirm(Survivors(sorted(survivors)))
            except Distrust:
                continue
            signed.setdefault(survivors, {})[id] = confirmation.signature
        for survivors, signatures in signed.items():
            helped = {id: self.signature(id, survivors) for id in self.helpers if id in survivors}
            for id in signatures:
                self.ask(id, Confirmations({**signatures, **helped}))

    def ask(self, id: str, confirmations: Confirmations) -> bool:
        """Whether an honest member revealed."""
        try:
            reveal = self.members[id].reveal(confirmations)
        except Distrust:
            return False
        if VICTIM in reveal.seeds:
            self.seeds[id] = reveal.seeds[VICTIM]
        if VICTIM in reveal.masking:
            self.masking[id] = reveal.masking[VICTIM]
        return True

    def unmasked(self) -> bool:
        """Whether the victim's own value comes out of what was given away."""
        seed, masking = self._rebuilt(self.seeds), self._rebuilt(self.masking)
        if seed is None or masking is None:
            return False
        bound = bound_context(self.context, self.cohort)
        masks = [self_mask(seed, VICTIM, bound)]
        masks += [
            pair_mask(VICTIM, masking, id, self.cohort.keys[id].masking, bound)
            for id in self.ids
            if id != VICTIM
        ]
        words = self.uploads[VICTIM].copy()
        Masker([Mask(key, -sign) for key, sign in masks], LAYOUT).add("w", 0, words)
        return bool((words == 7).all())

    def _rebuilt(self, shares: dict[str, bytes]) -> bytes | None:
        if len(shares) < self.cohort.threshold:
            return None
        some = sorted(shares)[: self.cohort.threshold]
        try:
            return shamir.rebuild({self.ids.index(id) + 1: shares[id] for id in some})
        except ValueError:
            return None


def lists(attack: Attack) -> tuple[frozenset[str], frozenset[str]]:
    """Two lists that differ by the victim."""
    everybody = frozenset(attack.ids)
    return everybody, everybody - {VICTIM}


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
def test_two_lists_unmask_nobody_however_they_are_told(count: int) -> None:
    """Every way to tell one list to some and the other to the rest."""
    size = count - most_colluders(count)
    for choice in product((0, 1), repeat=size - 1):
        attack = Attack(count, most_colluders(count))
        attack.exchange()
        told = dict(zip(attack.honest, [lists(attack)[c] for c in (0, *choice)], strict=True))
        attack.two_lists(told)
        assert not attack.unmasked(), choice


def test_the_attack_itself_works_once_more_than_a_third_collude() -> None:
    """Or the tests around this one would show nothing."""
    attack = Attack(6, 4)
    attack.exchange()
    with_victim, without = lists(attack)
    attack.two_lists({"p00": with_victim, "p01": without})
    assert attack.unmasked()


def test_five_members_one_colluder_and_the_old_threshold_of_three() -> None:
    """What used to unmask a member exactly: now nobody deals shares for such a threshold."""
    attack = Attack(5, 1)
    attack.cohort = msgspec.structs.replace(attack.cohort, threshold=3)
    with pytest.raises(Distrust, match="not above two thirds"):
        attack.exchange()


def test_thresholds_leave_no_room_for_two_lists() -> None:
    for count in range(2, 200):
        helped = most_colluders(count)
        assert threshold_of(count, 2 / 3) >= least_threshold(count) > 2 * count // 3
        # Honest members confirm one list each: two lists need twice the rest of the threshold.
        assert 2 * (least_threshold(count) - helped) > count - helped


def test_the_same_member_confirms_and_reveals_for_one_list_only() -> None:
    attack = Attack(4, 1)
    attack.exchange()
    with_victim, without = lists(attack)
    member = attack.members["p01"]
    member.confirm(Survivors(sorted(with_victim)))
    with pytest.raises(Distrust, match="twice"):
        member.confirm(Survivors(sorted(without)))


def confirmed_by_all(attack: Attack) -> dict[str, bytes]:
    everybody = sorted(attack.ids)
    return {id: attack.members[id].confirm(Survivors(everybody)).signature for id in attack.honest}


def test_no_signature_counts_but_a_members_own_on_this_very_list() -> None:
    attack, other = Attack(4, 1), Attack(4, 1, attempt=2)
    attack.exchange()
    other.exchange()
    good, old = confirmed_by_all(attack), confirmed_by_all(other)
    everybody, without = lists(attack)
    helper = attack.helpers[0]
    good[helper] = attack.signature(helper, everybody)
    stranger = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
    bound = bound_context(attack.context, attack.cohort)
    text = confirmed_text(bound, attack.ids, everybody)
    bad = {
        "too few": {id: good[id] for id in ("p00", "p01")},
        "none": {},
        "of another attempt": {**good, "p01": old["p01"]},
        "on another list": {**good, helper: attack.signature(helper, without)},
        "by a stranger": {**good, "p01": stranger.sign(text)},
        "in another's name": {**good, "p01": good["p02"]},
        "by nobody of the cohort": {**good, "sybil": stranger.sign(text)},
        "empty": {**good, "p01": bytes(64)},
    }
    for what, signatures in bad.items():
        assert not attack.ask("p00", Confirmations(signatures)), what
    assert attack.ask("p00", Confirmations(good))


def test_members_that_are_shown_different_cohorts_have_nothing_in_common() -> None:
    """The coordinator leaves a member out of the cohort it shows to another."""
    attack = Attack(6, 1)
    smaller = msgspec.structs.replace(
        attack.cohort,
        threshold=least_threshold(5),
        keys={id: keys for id, keys in attack.cohort.keys.items() if id != "p04"},
    )
    shown = {id: smaller if id == "p01" else attack.cohort for id in attack.ids}
    dealt = {id: attack.members[id].shares(shown[id]) for id in attack.ids}
    boxes = {dealer: shares.sealed["p00"] for dealer, shares in dealt.items()}
    attack.members["p00"].masks(Shares(boxes))
    assert "p01" not in attack.members["p00"]._opened
    assert attack.members["p00"].unopened().dealers == ["p01"]


def test_a_cohort_made_of_colluders_is_too_small() -> None:
    attack = Attack(9, 2)
    few = {id: attack.cohort.keys[id] for id in (VICTIM, *attack.helpers)}
    with pytest.raises(Distrust, match="least_cohort"):
        attack.member(VICTIM, Demands(9)).shares(Cohort(3, few))
    with pytest.raises(Distrust, match="below ours"):
        attack.member(VICTIM, Demands(3, 9)).shares(attack.cohort)


class Line:
    """A line to no coordinator, with a memory."""

    def __init__(self, known: Known) -> None:
        self.known = known


def test_one_set_of_survivors_a_round_over_all_attempts_and_lives(tmp_path: Path) -> None:
    key = str(tmp_path / "key")

    def confirm(round_: int, *ids: str) -> None:
        reborn: Any = Line(Known.beside(key, "run"))
        SecureDelivery(reborn, {}, Demands())._only_once(round_, Survivors(list(ids)))

    confirm(4, "a", "b", "c")
    confirm(4, "c", "b", "a")
    with pytest.raises(RequestRefused, match="other survivors"):
        confirm(4, "a", "b")
    with pytest.raises(RequestRefused, match="other survivors"):
        confirm(3, "a", "b", "c")  # a round that is over is not opened again
    confirm(5, "a", "b")
