"""The packed format: what is said arrives, and nothing that is wrong gets through."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.learning.methods.bfloat16 import from_bfloat16, to_bfloat16
from folkmoot.learning.methods.distro import wire
from folkmoot.learning.methods.distro.cpu import packing
from folkmoot.learning.methods.distro.plan import make_plan
from folkmoot.learning.methods.frame import check_frame

SHAPES = [("a", (128, 64)), ("b", (100,)), ("c", (29, 6)), ("d", (3,)), ("e", ())]


def entries(plan, seed, silent=0.2):
    """Random contents in canonical form: ascending indices, whole chunks silent."""
    rng = np.random.default_rng(seed)
    index, value = np.empty(plan.entries, np.int32), np.empty(plan.entries, np.float32)
    for g in plan.groups:
        where = slice(g.entry, g.entry + g.count * g.k)
        chosen = [np.sort(rng.choice(g.size, g.k, replace=False)) for _ in range(g.count)]
        index[where] = np.concatenate(chosen)
        said = rng.normal(size=(g.count, g.k)) * 10.0 ** rng.integers(-6, 6)
        said[rng.random(g.count) < silent] = 0
        value[where] = said.reshape(-1)
    return index, value


def refusal(plan, payload):
    """Both checkers' word, which must be the same."""
    found = check_frame(payload, wire.header(plan), wire.payload_size(plan))
    if found is not None:
        return found.reason
    plain, compiled = wire.check_body(plan, payload), packing.check_body(plan, payload)
    assert plain == compiled
    return None if plain is None else plain.reason


@given(st.integers(0, 2**32), st.sampled_from([1, 3, 8, 64, 5000]), st.sampled_from([1, 16]))
@settings(max_examples=60)
def test_what_is_packed_is_unpacked_and_both_packers_agree(seed, k, bits):
    plan = make_plan(SHAPES, 64, k, bits)
    index, value = entries(plan, seed)
    payload = wire.pack(plan, index, value)
    assert packing.pack(plan, index, value) == payload
    assert len(payload) == wire.payload_size(plan)
    assert refusal(plan, payload) is None
    places, said = wire.unpack(plan, payload)
    assert (places[value != 0] == index[value != 0]).all()
    expected = np.sign(value) if bits == 1 else from_bfloat16(to_bfloat16(value))
    assert (said == expected).all()


@given(st.integers(0, 2**32), st.data())
def test_any_change_is_refused_or_means_something_else_of_the_same_kind(seed, data):
    """Flip bits, cut, extend: a payload that still passes packs to the same bytes again."""
    k, bits = data.draw(st.sampled_from([3, 8])), data.draw(st.sampled_from([1, 16]))
    plan = make_plan(SHAPES, 64, k, bits)
    payload = bytearray(wire.pack(plan, *entries(plan, seed)))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = bytes(payload)[: data.draw(st.sampled_from([None, None, 3, 11, 40]))]
    if refusal(plan, changed) is None:
        index, value = wire.unpack(plan, changed)
        assert np.isfinite(value).all()
        if plan.bits == 1:
            assert wire.pack(plan, index, value) == changed


@given(st.binary(max_size=400))
def test_noise_is_refused(noise):
    plan = make_plan(SHAPES, 64, 3, 1)
    assert refusal(plan, noise) is not None
    framed = (wire.header(plan) + noise + bytes(wire.payload_size(plan)))[: wire.payload_size(plan)]
    refusal(plan, framed)


@pytest.fixture
def plan():
    return make_plan([("a", (29, 64)), ("b", (29, 64))], 64, 3, 16)


@pytest.fixture
def payload(plan):
    index = np.array([0, 5, 1855, 7, 8, 9], np.int32)
    return wire.pack(plan, index, np.array([1, -2, 3, 4, 5, 6], np.float32))


def test_a_payload_for_another_model_is_refused(plan, payload):
    for other in (
        make_plan([("a", (29, 64)), ("b", (29, 32))], 64, 3, 16),
        make_plan([("a", (29, 64)), ("b", (29, 64))], 64, 4, 16),
        make_plan([("a", (29, 64)), ("x", (29, 64))], 64, 3, 16),
    ):
        assert refusal(other, payload) == "fingerprint"
    assert refusal(make_plan([("a", (29, 64)), ("b", (29, 64))], 64, 3, 1), payload) == "setting"


def test_length_version_and_magic_are_checked_first(plan, payload):
    assert refusal(plan, b"") == "truncated"
    assert refusal(plan, payload[:-1]) == "truncated"
    assert refusal(plan, payload + b"\0") == "trailing"
    assert refusal(plan, payload + bytes(10_000_000)) == "trailing"
    assert refusal(plan, b"XX" + payload[2:]) == "not-this-method"
    assert refusal(plan, payload[:2] + b"\2" + payload[3:]) == "version"


def rewritten(plan, payload, indices=None, amplitudes=None, silent=None):
    at = wire.sections(plan)[0]
    raw = bytearray(payload)
    if indices is not None:
        packed = wire._put_bits(np.array(indices, np.int32), plan.groups[0].index_bits)
        raw[at.indices : at.amplitudes] = packed.tobytes()
    if amplitudes is not None:
        raw[at.amplitudes : at.end] = np.array(amplitudes, "<u2").tobytes()
    if silent is not None:
        raw[at.silent] = silent
    return bytes(raw)


def test_indices_out_of_range_or_order_are_refused(plan, payload):
    assert refusal(plan, rewritten(plan, payload, [0, 5, 1856, 7, 8, 9])) == "index"
    assert refusal(plan, rewritten(plan, payload, [0, 5, 2047, 7, 8, 9])) == "index"
    assert refusal(plan, rewritten(plan, payload, [5, 0, 9, 7, 8, 9])) == "index"
    assert refusal(plan, rewritten(plan, payload, [5, 5, 9, 7, 8, 9])) == "index"


@pytest.mark.parametrize("bad", [0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x7F7F, 0x5400])
def test_amplitudes_that_are_not_finite_or_absurd_are_refused(plan, payload, bad):
    assert refusal(plan, rewritten(plan, payload, amplitudes=[1, 2, bad, 4, 5, 6])) == "amplitude"


def test_padding_and_silence_have_one_spelling(plan, payload):
    assert refusal(plan, rewritten(plan, payload, silent=0b100)) == "padding"
    last = wire.sections(plan)[0].amplitudes - 1
    raw = bytearray(payload)
    raw[last] |= 0x80
    assert refusal(plan, bytes(raw)) == "padding"
    assert refusal(plan, rewritten(plan, payload, silent=0b01)) == "silent"
    quiet = rewritten(plan, payload, [0, 1, 2, 7, 8, 9], [0, 0, 0, 1, 1, 1], 0b01)
    assert refusal(plan, quiet) is None


@pytest.mark.parametrize("k", [8, 32, 128])
def test_bytes_on_the_wire_are_what_the_indices_and_signs_need(k):
    plan = make_plan([("w", (1024, 1024)), ("v", (4096, 1024))], 64, k, 1)
    needed = k * (12 + 1) / 8 * plan.size / 4096
    assert needed <= wire.payload_size(plan) <= 1.03 * needed
    if k == 8:
        assert plan.size * 4 / wire.payload_size(plan) >= 1000
