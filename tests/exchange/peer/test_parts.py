"""The small parts: pieces, the store, the tree, the pace, the copy."""

import os
import random

import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from iroh import iroh_ffi

from folkmoot.core.content import PIECE, content_name, piece_count, piece_hashes
from folkmoot.exchange.peer import StoreFull, uniffi_copy
from folkmoot.exchange.peer.blob_store import BlobStore
from folkmoot.exchange.peer.pieces import SHARE, Pieces, WrongContent
from folkmoot.exchange.peer.rate_limit import RateLimiter
from folkmoot.exchange.peer.tree import children


def pieces_of(content: bytes, limit: int = 1 << 40) -> Pieces:
    hashes = piece_hashes(memoryview(content), blake3)
    return Pieces(content_name(content, blake3), len(content), hashes, limit)


def piece(content: bytes, index: int) -> bytes:
    return content[index * PIECE : (index + 1) * PIECE]


@settings(max_examples=40)
@given(
    size=st.integers(0, 70).map(lambda n: max(0, n * PIECE - n)),
    workers=st.integers(1, 5),
    seed=st.integers(0, 10**6),
)
def test_whoever_brings_and_breaks_off_the_content_is_whole(
    size: int, workers: int, seed: int
) -> None:
    rng = random.Random(seed)
    content = os.urandom(64) * (size // 64) + bytes(size % 64)
    pieces = pieces_of(content)
    asked = 0
    while pieces.left:
        span = pieces.take(workers)
        assert span is not None
        assert workers == 1 or span[1] - span[0] <= SHARE
        brought = rng.randint(0, span[1] - span[0])
        for index in range(span[0], span[0] + brought):
            assert len(piece(content, index)) == pieces.length(index)
            pieces.put(index, piece(content, index))
            asked += 1
        pieces.give_back(span[0] + brought, span[1])
    assert bytes(pieces.data) == content
    assert asked == piece_count(size)  # nothing twice
    assert not pieces.waiting()


def test_a_wrong_piece_is_found_out_alone() -> None:
    content = os.urandom(3 * PIECE)
    pieces = pieces_of(content)
    pieces.put(0, piece(content, 0))
    with pytest.raises(WrongContent, match="number 1"):
        pieces.put(1, piece(content, 2))
    pieces.put(1, piece(content, 1))
    pieces.put(2, piece(content, 2))
    assert bytes(pieces.data) == content


def test_a_wrong_outline_is_found_out_before_any_content() -> None:
    content = memoryview(os.urandom(3 * PIECE))
    name, hashes = content_name(content, blake3), piece_hashes(content, blake3)
    with pytest.raises(WrongContent, match="does not fit"):
        Pieces(name, len(content), hashes[:-32], 1 << 40)
    with pytest.raises(WrongContent, match="does not prove"):
        Pieces(name, len(content) - 1, hashes, 1 << 40)
    with pytest.raises(WrongContent, match="does not prove"):
        Pieces(name, len(content), hashes[:-1] + b"x", 1 << 40)
    with pytest.raises(WrongContent, match="at most 5 were expected"):
        Pieces(name, len(content), hashes, 5)


def test_what_was_put_stays_until_its_round_is_over_or_it_is_dropped() -> None:
    store = BlobStore(1000)
    pinned, early, late = (store.put(bytes([n]) * 10, r) for n, r in enumerate((None, 3, 4)))
    store.expire(4)
    assert (pinned in store, early in store, late in store) == (True, False, True)
    store.drop(pinned)
    store.drop(pinned)
    assert store.used == 10
    assert store.put(b"\x02" * 10, 9) == late  # the same content for a later round
    store.expire(9)
    assert late in store


def test_fetched_content_makes_room_and_own_content_does_not() -> None:
    store = BlobStore(100)
    names = [content_name(bytes([n]) * 40, blake3) for n in range(3)]
    for n, name in enumerate(names):
        store.keep(name, bytes([n]) * 40, name, None)
    assert [name in store for name in names] == [False, True, True]
    store.put(b"x" * 90, None)
    assert not any(name in store for name in names)
    with pytest.raises(StoreFull, match="raise `store_bytes`"):
        store.put(b"y" * 11, None)
    store.keep(names[0], bytes(40), names[0], None)
    assert names[0] not in store
    assert store.used == 90


@given(st.integers(1, 60), st.integers(1, 8), st.integers(0, 1000))
def test_the_tree_holds_every_member_once_below_its_author(
    size: int, fanout: int, round_: int
) -> None:
    members = tuple(n.to_bytes(32, "big") for n in range(size))
    origin = members[round_ % size]
    reached, todo = [origin], [origin]
    while todo:
        below = children(todo.pop(), origin, round_, members, fanout)
        assert len(below) <= fanout
        reached += below
        todo += below
    assert sorted(reached) == list(members)


def test_another_round_has_another_tree() -> None:
    members = tuple(n.to_bytes(32, "big") for n in range(30))
    trees = {tuple(children(members[0], members[0], round_, members, 6)) for round_ in range(10)}
    assert len(trees) == 10


def test_a_stranger_has_no_place_in_the_tree() -> None:
    assert children(b"x", b"a", 1, (b"a", b"b"), 2) == []


def test_a_bucket_allows_a_burst_and_then_its_rate() -> None:
    bucket = RateLimiter(rate=10, burst=20)
    assert all(bucket.take(1, 100.0) for _ in range(20))
    assert not bucket.take(1, 100.0)
    assert bucket.take(1, 100.3)
    assert not bucket.take(5, 100.3)


@given(st.lists(st.binary(max_size=2000), max_size=20))
def test_the_copy_writes_what_the_bindings_own_loop_writes(parts: list[bytes]) -> None:
    builder = iroh_ffi._UniffiRustBufferBuilder()
    for part in parts:
        uniffi_copy._write(builder, part)
        builder.write_u8(7)
    buffer = builder.finalize()
    try:
        assert buffer.data[: buffer.len] == b"".join(part + b"\x07" for part in parts)
    finally:
        buffer.free()


def test_the_copy_refuses_a_binding_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    uniffi_copy.install()
    assert iroh_ffi._UniffiRustBufferBuilder.write is uniffi_copy._write
    monkeypatch.delattr(iroh_ffi, "_UniffiRustBufferBuilder")
    with pytest.raises(RuntimeError, match=r"install iroh 1\.2"):
        uniffi_copy.install()
