"""Identities, signatures over every field, and nonces that are taken once."""

import json
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.host.signing import Identity, Nonces, Signer, Unauthenticated, framed, verify

SESSION = b"a session"


def test_a_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys" / "me.key"
    made = Identity.load(file)
    assert Identity.load(file).public == made.public
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "no key", "ab" * 31, "ab" * 33])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "me.key"
    file.write_text(text)
    with pytest.raises(ValueError, match="expected 64 hex digits"):
        Identity.load(file)


@given(st.lists(st.binary(max_size=9), max_size=4), st.lists(st.binary(max_size=9), max_size=4))
def test_no_two_lists_of_parts_give_the_same_bytes(one: list[bytes], other: list[bytes]) -> None:
    assert (framed(*one) == framed(*other)) == (one == other)


def signed(signer: Signer) -> SimpleNamespace:
    proof = SimpleNamespace()
    signer.sign(proof, SESSION, lambda: framed(proof.session, bytes(proof.nonce % 7)))
    return proof


def test_a_signature_covers_the_session_and_the_nonce_it_is_made_with() -> None:
    proof = signed(Signer(Identity.random()))
    data = framed(SESSION, bytes(proof.nonce % 7))
    verify(proof.public_key, proof.signature, data)
    with pytest.raises(Unauthenticated, match="does not fit"):
        verify(proof.public_key, proof.signature, data + b"more")


def test_nonces_grow_also_over_restarts_and_leap_past_a_clock_that_was_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1_700_000_000_000_000_000
    monkeypatch.setattr("time.time_ns", lambda: now)
    me = Identity.random()
    first = Signer(me)
    nonces = [signed(first).nonce for _ in range(3)]
    now += 1_000_000
    again = Signer(me)
    nonces += [signed(again).nonce for _ in range(3)]
    assert nonces == sorted(set(nonces))
    again.leap()
    assert signed(again).nonce > nonces[-1] + 3_500_000_000


def test_a_nonce_is_taken_once_in_any_order_within_the_window() -> None:
    nonces = Nonces()
    for nonce in (5, 3, 4, 2000, 1999, 1000):
        nonces.take(b"me", nonce)
    for nonce in (5, 2000, 1999, 1000, 0, 976):
        with pytest.raises(Unauthenticated, match="replay"):
            nonces.take(b"me", nonce)
    nonces.take(b"me", 977)
    nonces.take(b"you", 5)


@given(st.lists(st.integers(1, 3000), max_size=60))
def test_nonces_agree_with_a_plain_set(taken: list[int]) -> None:
    nonces, seen = Nonces(), set[int]()
    for nonce in taken:
        too_old = nonce <= max(seen, default=0) - Nonces.WINDOW
        try:
            nonces.take(b"me", nonce)
            assert nonce not in seen
            assert not too_old
        except Unauthenticated:
            assert nonce in seen or too_old
        seen.add(nonce)


def test_only_so_many_keys_are_remembered() -> None:
    nonces = Nonces(keys=2)
    for key in (b"a", b"b", b"c"):
        nonces.take(key, 1)
    nonces.take(b"a", 1)
    with pytest.raises(Unauthenticated):
        nonces.take(b"c", 1)


def test_a_nonce_that_is_only_looked_at_is_not_taken() -> None:
    nonces, key = Nonces(), b"k" * 32
    for _ in range(2):
        nonces.refuse_used(key, 5)
    nonces.take(key, 5)
    for used in (0, 5):
        with pytest.raises(Unauthenticated, match="replay"):
            nonces.refuse_used(key, used)
    nonces.refuse_used(key, 4)
    nonces.take(key, 5 + Nonces.WINDOW)
    with pytest.raises(Unauthenticated, match="replay"):
        nonces.refuse_used(key, 4)


def test_a_keypair_of_solanas_tools_is_a_key(tmp_path: Path) -> None:
    identity = Identity(b"k" * 32)
    pair = [*identity.private, *identity.public]
    file = tmp_path / "id.json"
    file.write_text(json.dumps(pair))
    assert Identity.read(file).public == identity.public
    for wrong in (pair[:32], [*pair, 1], [300] * 64, ["x"] * 64):
        file.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match="or a Solana keypair"):
            Identity.read(file)
