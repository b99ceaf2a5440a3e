"""Records of a run's log: made by anyone, checked by everyone."""

import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from authority.any_run import OWNER, STRANGER, A, B, C, join
from authority.store.store_run import after, begun, genesis, mail
from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.mail import MAX_MAIL, BadMail, Mail, read_mail, write_mail
from folkmoot.authority.store.record import (
    MAX_STEP,
    SPAN,
    Invalid,
    Place,
    Record,
    Step,
    base_version,
    begin,
    due,
    first_record,
    is_kept,
    snapshot,
    verify,
)
from folkmoot.authority.store.signed import seal
from folkmoot.core.bloom import bloom_bits
from folkmoot.core.coordinator import Coordinator, Phase, encode
from folkmoot.core.coordinator import messages as m

OF = genesis(total_steps=20, rounds_per_epoch=8, round_witness_time=1, max_round_train_time=2)
WHO = {identity.public: identity for identity in (A, B)}


def sealed(of: Genesis, record: Record, by: Any = A) -> bytes:
    payload = msgspec.msgpack.Encoder(order="deterministic").encode(record)
    return seal(by, payload, b"folkmoot record 1", of.digest)


@pytest.fixture
def joined() -> Step:
    return after(OF, begun(OF), 5, (1, A, join(A)), (2, B, join(B)))


def test_what_one_makes_others_find_true(joined: Step) -> None:
    found = verify(OF, begun(OF), joined.place.data)
    assert found == joined
    assert found.place.state.phase is Phase.Warmup
    assert found.answers == {1: None, 2: None}


def test_a_refused_message_is_recorded_with_its_refusal(joined: Step) -> None:
    step = after(OF, joined.place, 6, (3, A, join(A)), by=B)
    assert step.answers == {3: m.refusal(m.Reason.AlreadyMember)}
    assert encode(step.place.state) == encode(joined.place.state)


@given(st.integers(0), st.integers(1, 255))
def test_a_record_with_any_byte_changed_is_none(at: int, bits: int) -> None:
    step = after(OF, begun(OF), 5, (1, A, join(A)))
    data = bytearray(step.place.data)
    data[at % len(data)] ^= bits
    with pytest.raises(Invalid):
        verify(OF, begun(OF), bytes(data))


@given(st.binary(max_size=300))
def test_garbage_is_no_record(data: bytes) -> None:
    with pytest.raises(Invalid):
        verify(OF, begun(OF), data)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda r: replace(r, version=3), "does not follow"),
        (lambda r: replace(r, before=bytes(32)), "does not follow"),
        (lambda r: replace(r, time=-1), "moves the run's time"),
        (lambda r: replace(r, time=MAX_STEP + 1), "moves the run's time"),
        (lambda r: replace(r, time=r.time + 1), "leads to another state"),
        (lambda r: replace(r, mail=r.mail[:1]), "leads to another state"),
        (lambda r: replace(r, mail=r.mail[::-1]), "order of their slots"),
        (lambda r: replace(r, mail=r.mail + r.mail[1:]), "order of their slots"),
        (lambda r: replace(r, given_up=(2,)), "takes a slot and gives it up"),
        (lambda r: replace(r, given_up=(99_999,)), "not open"),
        (lambda r: replace(r, mail=(Mail(3, r.mail[0].data),)), "letter that is none"),
        (lambda r: replace(r, mail=(Mail(1, b"garbage"),)), "letter that is none"),
        (lambda r: replace(r, mail=()), "no reason"),
        (lambda r: replace(r, after=bytes(32)), "leads to another state"),
        (lambda r: replace(r, base=bytes(32)), "another snapshot"),
    ],
)
def test_whatever_a_member_does_to_a_record_it_is_found_out(
    joined: Step, spoil: Callable[[Record], Record], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        verify(OF, begun(OF), sealed(OF, spoil(joined.place.record)))


def test_a_record_of_another_run_or_by_a_stranger_is_none(joined: Step) -> None:
    with pytest.raises(Invalid, match="signature"):
        verify(genesis(), begun(OF), joined.place.data)
    closed = genesis(allowed=[A])
    step = after(closed, begun(closed), 0, (1, A, join(A)), by=OWNER)
    verify(closed, begun(closed), step.place.data)
    with pytest.raises(Invalid, match="allow-list"):
        verify(closed, begun(closed), sealed(closed, step.place.record, STRANGER))


def test_a_tick_is_a_reason_once_it_is_due(joined: Step) -> None:
    when = due(joined.place)
    assert when is not None
    with pytest.raises(Invalid, match="no reason"):
        after(OF, joined.place, when - 1)
    after(OF, joined.place, when)


# Letters.


@pytest.mark.parametrize(
    ("letter", "why"),
    [
        (Mail(1, b""), "not a signed value"),
        (Mail(1, b"garbage"), "not a signed value"),
        (Mail(1, bytes(MAX_MAIL + 1)), "larger than"),
        (mail(OF, 2, A, join(A)), None),
        (Mail(1, write_mail(A, OF, 2, join(A))), "signature"),
        (Mail(1, write_mail(A, genesis(), 1, join(A))), "signature"),
        (mail(OF, 1, A, join(B)), "another sender"),
        (mail(OF, 1, A, m.Pause()), "only an owner"),
        (mail(OF, 1, OWNER, m.Pause()), None),
        (
            Mail(1, seal(A, b"\xc1", b"folkmoot mail 1", OF.digest, bytes([1, *bytes(7)]))),
            "not a m",
        ),
    ],
)
def test_a_letter_is_good_or_not_by_itself(letter: Mail, why: str | None) -> None:
    if why is None:
        read_mail(OF, letter)
        return
    with pytest.raises(BadMail, match=why):
        read_mail(OF, letter)


def test_on_an_allow_list_or_not() -> None:
    closed = genesis(allowed=[A])
    read_mail(closed, mail(closed, 1, A, join(A)))
    read_mail(closed, mail(closed, 1, OWNER, join(OWNER)))
    with pytest.raises(BadMail, match="allow-list"):
        read_mail(closed, mail(closed, 1, B, join(B)))


# Seeds.


def witness(state: Coordinator, identity: bytes) -> m.OpportunisticWitness:
    index = state.index(state.round, state.find(identity) or 0) or 0  # one who left says so too
    empty = bytes(bloom_bits(len(state.epoch.clients)) // 8)
    proof = state.committee(state.round).get_witness(index)
    return m.OpportunisticWitness(
        identity, state.epoch_number, state.round.height, proof, empty, empty, bytes(32), bytes(32)
    )


def seeds_of(choices: list[int]) -> dict[tuple[int, int], int]:
    """Seeds by epoch and round, of a run whose records are made as the choices have it."""
    at, slot, time = begun(OF), 1, 0
    seeds: dict[tuple[int, int], int] = {}
    for choice, by in zip(choices, itertools.cycle((A, B, OWNER)), strict=False):
        state = at.state
        time = at.time + (choice // 8) % 50
        said: list[Any] = []
        if state.phase is Phase.WaitingForMembers:
            said = [join(who) for who in (A, B)]
        elif state.phase is Phase.Warmup:
            said = [m.Ready(who.public, state.epoch_number) for who in (A, B)]
        elif state.phase in (Phase.RoundTrain, Phase.RoundWitness):
            said = [witness(state, who.public) for who in (A, B)]
        if choice & 1:
            said.reverse()
        if choice & 2:
            said = said[:1]
        if choice & 4:
            said, time = [], max(due(at) or 0, at.time)
        letters = []
        for message in said:
            letters.append((slot, WHO[message.sender], message))
            slot += 1
        try:
            at = after(OF, at, time, *letters, by=by).place
        except Invalid:
            continue
        if at.state.epoch.rounds:
            newest = at.state.round
            seeds[at.state.epoch_number, newest.height] = newest.seed
    return seeds


@given(st.lists(st.integers(0, 1000), min_size=12, max_size=24))
@settings(max_examples=25)
def test_nobody_chooses_a_seed_by_batching_ordering_or_timing(choices: list[int]) -> None:
    straight = seeds_of([0] * 16)
    assert len(straight) > 3
    assert len(set(straight.values())) == len(straight)
    for where, seed in seeds_of(choices).items():
        assert straight.get(where, seed) == seed


# Snapshots.


def long_chain(length: int) -> list[Place]:
    places = [begun(OF)]
    for slot in range(1, length + 1):
        sign = m.HealthCheck(C.public)
        places.append(after(OF, places[-1], slot, (slot, C, sign)).place)
    return places


def test_one_who_begins_at_a_snapshot_is_where_the_others_are() -> None:
    places = long_chain(SPAN + 3)
    newest = places[-1]
    at = base_version(newest.version)
    assert at == SPAN
    assert is_kept(at)
    assert newest.record.base == places[at].record.after
    place = begin(OF, places[at].data, snapshot(places[at]))
    for later in places[at + 1 :]:
        place = verify(OF, place, later.data).place
    assert place == newest


def test_a_snapshot_that_is_not_the_records_is_refused() -> None:
    places = long_chain(SPAN)
    whole = snapshot(places[SPAN])
    for wrong in (None, b"", whole[:-1], snapshot(places[SPAN - 1])):
        with pytest.raises(Invalid, match="does not belong"):
            begin(OF, places[SPAN].data, wrong)


def test_the_first_record_needs_no_snapshot() -> None:
    first = first_record(OF, B)
    assert begin(OF, first.data) == first
    assert base_version(0) == base_version(1) == base_version(SPAN) == 0
    with pytest.raises(Invalid):
        begin(OF, first_record(genesis(), B).data)


def test_a_letter_on_which_the_machine_fails_is_no_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    from folkmoot.authority.store import record

    def fails(state: Any, event: Any, now: int, seed: int) -> Any:
        raise OverflowError("int too large")

    monkeypatch.setattr(record.coordinator, "apply", fails)
    with pytest.raises(record.Unfit, match="slot 1") as caught:
        after(OF, begun(OF), 0, (1, A, join(A)))
    assert caught.value.slot == 1
