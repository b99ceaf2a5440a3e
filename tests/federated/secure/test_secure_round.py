"""Whole secure rounds, without a network: sums, drop-outs, liars, and what can be seen."""

import contextlib
import random

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.model_file.memory import MemoryModel
from folkmoot.federated.secure.config import SecureConfig
from folkmoot.federated.secure.coordinator_attempt import (
    CoordinatorAttempt,
    SecureStep,
    TooFew,
    threshold_of,
)
from folkmoot.federated.secure.masked_update import UnmaskedMean, masked_layout, write_masked
from folkmoot.federated.secure.messages import (
    BadMessage,
    Cohort,
    Confirmation,
    Confirmations,
    Keys,
    Reveal,
    Shares,
    Survivors,
    Unopened,
    decode,
    encode,
)
from folkmoot.federated.secure.participant_attempt import (
    Distrust,
    ParticipantAttempt,
    attempt_context,
    signed_text,
)

RULES = SecureConfig()
CONTEXT = attempt_context("run", 3, 0)
BASE = MemoryModel(
    {"w": np.linspace(-1, 1, 2001, dtype=np.float32), "b": np.zeros((2, 2), np.float64)}
)


class Cast:
    """A cohort of members with fixed randomness and one coordinator."""

    def __init__(self, count, seed=0):
        self.ids = [f"p{index:02}" for index in range(count)]
        identities = {
            id: Ed25519PrivateKey.from_private_bytes(id.encode().ljust(32)) for id in self.ids
        }
        self.public = {id: key.public_key().public_bytes_raw() for id, key in identities.items()}
        self.members = {
            id: ParticipantAttempt(
                id, key, CONTEXT, random.Random(f"{seed}{id}").randbytes, self.known
            )
            for id, key in identities.items()
        }
        self.coordinator = CoordinatorAttempt(CONTEXT, RULES.threshold)
        self.uploads = {}
        rng = np.random.default_rng(seed)
        self.models = {
            id: MemoryModel(
                {
                    "w": BASE.arrays["w"] + rng.standard_normal(2001, np.float32),
                    "b": rng.standard_normal((2, 2)),
                }
            )
            for id in self.ids
        }
        self.samples = {id: index + 1 for index, id in enumerate(self.ids)}

    def known(self, id, public):
        return self.public.get(id) == public

    def exchange_keys(self, present=None):
        present = self.ids if present is None else present
        for id in present:
            self.coordinator.keys(id, wire(self.members[id].keys(), Keys))
        self.coordinator.close_keys()
        return wire(self.coordinator.cohort(), Cohort)

    def exchange_shares(self, cohort, present=None):
        present = list(cohort.keys) if present is None else present
        for id in present:
            self.coordinator.shares(id, wire(self.members[id].shares(cohort), Shares))
        self.coordinator.without(set(self.ids) - set(present))

    def upload(self, id):
        masks = self.members[id].masks(wire(self.coordinator.shares_for(id), Shares))
        out = MemoryModel.empty(masked_layout(BASE.layout))
        write_masked(self.models[id], BASE, self.samples[id], masks, RULES.precision, out)
        self.uploads[id] = out
        return out

    def close(self, ids):
        """The round closes with the updates of `ids`, who are all still there."""
        self.coordinator.delivered(ids)
        for id in ids:
            self.coordinator.unopened(id, wire(self.members[id].unopened(), Unopened))

    def confirm(self, present=None):
        survivors = wire(self.coordinator.survivors(), Survivors)
        present = survivors.delivered if present is None else present
        for id in present:
            self.coordinator.confirm(id, wire(self.members[id].confirm(survivors), Confirmation))
        self.coordinator.without(set(self.ids) - set(present))

    def reveal(self, present=None):
        self.confirm(present)
        confirmed = wire(self.coordinator.confirmations(), Confirmations)
        for id in self.coordinator.survivors().delivered if present is None else present:
            self.coordinator.reveal(id, wire(self.members[id].reveal(confirmed), Reveal))

    def upload_and_reveal(self, ids):
        """All steps, when everybody dealt shares and `ids` delivered."""
        self.exchange_shares(self.exchange_keys())
        for id in ids:
            self.upload(id)
        self.close(ids)
        self.reveal()

    def unmasked(self, ids):
        updates = [ModelUpdate(id, self.samples[id], self.uploads[id], base=BASE) for id in ids]
        return UnmaskedMean(BASE, updates, self.coordinator.residue(), RULES.precision)

    def mean(self):
        source = self.unmasked(self.coordinator.survivors().delivered)
        out = MemoryModel.empty(BASE.layout)
        FedAvg().combine(
            Closing(
                BASE, [ModelUpdate("sum", source.samples, source, base=BASE)], None, out, None, b""
            )
        )
        return out.arrays

    def plain_mean(self, ids):
        weights = [self.samples[id] for id in ids]
        return {
            name: np.average([self.models[id].arrays[name] for id in ids], axis=0, weights=weights)
            for name in BASE.layout
        }


def wire(message, kind):
    """Through the bytes that would travel."""
    return decode(encode(message), kind)


def same(mean, expected):
    """Equal to half a step of the fixed point, and the rounding to the array's own dtype."""
    return all(
        (np.abs(mean[name] - exact) <= 2.0**-25 + 0.51 * np.spacing(np.abs(mean[name]))).all()
        for name, exact in expected.items()
    )


def test_the_sum_of_everybody_is_exact_to_quantisation():
    cast = Cast(5)
    cast.upload_and_reveal(cast.ids)
    assert same(cast.mean(), cast.plain_mean(cast.ids))


@settings(max_examples=40)
@given(st.data(), st.integers(3, 9))
def test_whoever_drops_out_wherever_the_rest_are_summed_or_the_attempt_fails(data, count):
    """At each step some are lost; while a threshold is left the mean is that of who delivered."""
    cast = Cast(count, seed=count)
    lost = {
        id: data.draw(st.sampled_from(["never", "keys", "shares", "update", "reveal"]))
        for id in cast.ids
    }
    order = ["keys", "shares", "update", "reveal", "never"]

    def present(step):
        return [id for id in cast.ids if order.index(lost[id]) > order.index(step)]

    try:
        cohort = cast.exchange_keys(present("keys"))
        cast.exchange_shares(cohort, present("shares"))
        delivered = present("update")
        for id in delivered:
            cast.upload(id)
        cast.close(delivered)
        stay = present("reveal")
        cast.reveal(stay)
        cast.coordinator.without(set(cast.ids) - set(stay))
    except TooFew:
        cohort_size = len(present("keys"))
        left = len(present("reveal"))
        assert cohort_size < 3 or left < threshold_of(cohort_size, RULES.threshold)
        return
    assert cast.coordinator.step == SecureStep.DONE
    assert len(present("reveal")) >= threshold_of(len(present("keys")), RULES.threshold)
    assert same(cast.mean(), cast.plain_mean(delivered))


def test_the_mean_does_not_depend_on_the_masks():
    """A second attempt with fresh secrets, as after a crash, gives the same bits."""
    first, second = Cast(4, seed=1), Cast(4, seed=2)
    second.models = first.models
    results = []
    for cast in (first, second):
        cast.upload_and_reveal(cast.ids[:3])
        results.append(cast.mean())
    assert all(np.array_equal(results[0][name], results[1][name]) for name in BASE.layout)
    assert not np.array_equal(first.uploads["p00"].arrays["w"], second.uploads["p00"].arrays["w"])


def test_an_upload_looks_random_whatever_the_model():
    """Two very different models give uploads with no visible difference: words are uniform."""
    cast = Cast(3)
    cast.models["p00"] = BASE  # a step of exactly zero
    cast.exchange_shares(cast.exchange_keys())
    words = cast.upload("p00").arrays["w"].view(np.uint64)
    high = (words >> np.uint64(60)).astype(int)
    counts = np.bincount(high, minlength=16)
    assert abs(counts - 2001 / 16).max() < 60
    assert len(np.unique(words)) == 2001


def test_a_partial_sum_stays_masked():
    """Leaving one survivor's upload out of the sum does not give the sum of the others."""
    cast = Cast(4)
    cast.upload_and_reveal(cast.ids)
    source = cast.unmasked(cast.ids[:3])
    out = np.empty(2001, np.float32)
    source.read("w", 0, out)
    assert np.median(np.abs(out - cast.plain_mean(cast.ids[:3])["w"])) > 100  # cut to the limit


def test_a_span_at_any_odd_place_unmasks_like_the_whole():
    cast = Cast(3)
    cast.upload_and_reveal(cast.ids)
    source = cast.unmasked(cast.ids)
    whole = cast.mean()["w"]
    for start, size in ((1, 7), (3, 1), (1999, 2), (0, 2001)):
        out = np.empty(size, np.float32)
        source.read("w", start, out)
        assert np.array_equal(out, whole[start : start + size])


def test_a_member_refuses_a_cohort_that_changed_its_keys():
    cast = Cast(3)
    cohort = cast.exchange_keys()
    stolen = {**cohort.keys, "p00": cohort.keys["p01"]}
    with pytest.raises(Distrust, match="the keys we sent"):
        cast.members["p00"].shares(msgspec.structs.replace(cohort, keys=stolen))


def test_a_member_refuses_keys_that_somebody_else_signed():
    cast = Cast(3)
    cohort = cast.exchange_keys()
    # The coordinator puts its own mask key in p01's place.
    forged = msgspec.structs.replace(cohort.keys["p01"], masking=b"\x09" + bytes(31))
    with pytest.raises(Distrust, match="not signed"):
        cast.members["p00"].shares(
            msgspec.structs.replace(cohort, keys={**cohort.keys, "p01": forged})
        )


def test_a_member_refuses_strangers_in_the_cohort():
    cast = Cast(3)
    cohort = cast.exchange_keys()
    del cast.public["p02"]
    with pytest.raises(Distrust, match="p02 is not known to us"):
        cast.members["p00"].shares(cohort)


@pytest.mark.parametrize("threshold", [0, 1, 3, 4, 7])
def test_a_member_refuses_a_threshold_that_is_not_above_two_thirds(threshold):
    cast = Cast(6)
    cohort = msgspec.structs.replace(cast.exchange_keys(), threshold=threshold)
    with pytest.raises(Distrust, match="not above two thirds"):
        cast.members["p00"].shares(cohort)


def test_a_member_confirms_once_and_never_too_few():
    cast = Cast(6)
    cast.exchange_shares(cast.exchange_keys())
    member = cast.members["p00"]
    cast.upload("p00")
    with pytest.raises(Distrust, match="fewer than 5"):
        member.confirm(Survivors(cast.ids[:4]))
    with pytest.raises(Distrust, match="missing from them"):
        member.confirm(Survivors(cast.ids[1:]))
    with pytest.raises(Distrust, match="before the survivors are confirmed"):
        member.reveal(Confirmations({}))
    member.confirm(Survivors(cast.ids[:5]))
    with pytest.raises(Distrust, match="twice"):
        member.confirm(Survivors(cast.ids[:5]))


def test_a_share_that_does_not_open_costs_its_holder_nothing():
    """p01's box for p00 is garbage; three others can open theirs, and that is enough."""
    cast = Cast(4)
    cast.exchange_shares(cast.exchange_keys())
    spoiled = {**cast.coordinator._shares["p01"].sealed, "p00": bytes(82)}
    cast.coordinator._shares["p01"] = Shares(spoiled)
    for id in cast.ids:
        cast.upload(id)
    cast.close(cast.ids)
    cast.reveal()
    assert cast.coordinator.step == SecureStep.DONE
    assert same(cast.mean(), cast.plain_mean(cast.ids))


def test_a_dealer_whose_shares_nobody_can_open_is_named():
    cast = Cast(4)
    cast.exchange_shares(cast.exchange_keys())
    cast.coordinator._shares["p01"] = Shares(dict.fromkeys(cast.ids, bytes(82)))
    for id in cast.ids:
        cast.upload(id)
    with pytest.raises(TooFew, match="p01") as failed:
        cast.close(cast.ids)
    assert failed.value.dealers == ("p01",)


@pytest.mark.parametrize("point", [bytes(32), b"\x01" + bytes(31)])
def test_a_key_of_low_order_is_refused_before_it_reaches_anybody(point):
    cast = Cast(3)
    member = cast.members["p00"]
    honest = member.keys()
    text = signed_text(CONTEXT, "p00", honest.sealing, point, honest.commitment)
    forged = Keys(
        honest.sealing, point, honest.commitment, honest.identity, member._identity.sign(text)
    )
    with pytest.raises(BadMessage, match="low order"):
        cast.coordinator.keys("p00", forged)


def with_a_liar(members, kind):
    """All but one deliver, and all reveal; p01 gives a false share of every secret of a kind."""
    cast = Cast(members)
    cast.exchange_shares(cast.exchange_keys())
    for id in cast.ids[:-1]:
        cast.upload(id)
    cast.close(cast.ids[:-1])
    cast.confirm()
    confirmed = cast.coordinator.confirmations()
    for id in cast.coordinator.survivors().delivered:
        told = cast.members[id].reveal(confirmed)
        if id == "p01":
            false = {other: bytes(33) for other in getattr(told, kind)}
            told = msgspec.structs.replace(told, **{kind: false})
        cast.coordinator._reveals[id] = told
    return cast


@pytest.mark.parametrize("kind", ["seeds", "masking"])
def test_a_liar_among_the_threshold_spoils_the_attempt_and_not_the_model(kind):
    cast = with_a_liar(4, kind)
    with pytest.raises(TooFew, match="do not give"):
        cast.coordinator.residue()


@pytest.mark.parametrize("kind", ["seeds", "masking"])
def test_one_liar_is_worked_around_while_there_are_answers_to_spare(kind):
    cast = with_a_liar(10, kind)
    assert same(cast.mean(), cast.plain_mean(cast.ids[:9]))


def test_the_same_message_again_is_harmless_and_another_one_is_refused():
    cast = Cast(4)
    keys = cast.members["p00"].keys()
    cast.coordinator.keys("p00", keys)
    cast.coordinator.keys("p00", keys)
    with pytest.raises(BadMessage, match="differently"):
        cast.coordinator.keys("p00", cast.members["p01"].keys())
    for id in ("p01", "p02"):
        cast.coordinator.keys(id, cast.members[id].keys())
    cast.coordinator.close_keys()
    with pytest.raises(BadMessage, match="not expected"):
        cast.coordinator.keys("p03", cast.members["p03"].keys())


def test_keys_signed_for_another_attempt_are_refused():
    cast = Cast(3)
    late = CoordinatorAttempt(attempt_context("run", 3, 1), RULES.threshold)
    with pytest.raises(Distrust, match="not signed"):
        late.keys("p00", cast.members["p00"].keys())


def test_shares_for_a_part_of_the_cohort_are_refused():
    cast = Cast(3)
    cohort = cast.exchange_keys()
    dealt = cast.members["p00"].shares(cohort).sealed
    with pytest.raises(BadMessage, match="everybody"):
        cast.coordinator.shares("p00", Shares({"p01": dealt["p01"]}))


@given(
    st.binary(max_size=300),
    st.sampled_from([Keys, Cohort, Shares, Unopened, Survivors, Confirmations, Reveal]),
)
def test_a_strangers_bytes_are_a_message_or_a_reason(data, kind):
    with contextlib.suppress(BadMessage):
        assert isinstance(decode(data, kind), kind)
