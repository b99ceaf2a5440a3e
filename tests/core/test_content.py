"""Names of content."""

from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.content import (
    PIECE,
    content_name,
    name_of_pieces,
    piece_count,
    piece_hashes,
)


def test_up_to_a_piece_the_name_is_the_plain_hash() -> None:
    for content in (b"", b"x", bytes(PIECE)):
        assert content_name(content, blake3) == blake3(content).digest()
    assert content_name(bytes(PIECE + 1), blake3) != blake3(bytes(PIECE + 1)).digest()


@given(st.integers(0, 5 * PIECE))
def test_there_is_a_hash_for_every_piece_and_one_at_least(size: int) -> None:
    assert piece_count(size) == len(range(0, max(1, size), PIECE))


def test_every_byte_and_the_size_are_in_the_name() -> None:
    content = bytearray(2 * PIECE + 5)
    names = {content_name(content, blake3), content_name(content[:-1], blake3)}
    for at in (0, PIECE, 2 * PIECE + 4):
        changed = bytearray(content)
        changed[at] = 1
        names.add(content_name(changed, blake3))
    assert len(names) == 5


def test_no_content_passes_for_another_ones_list_of_pieces() -> None:
    content = memoryview(bytes(3 * PIECE))
    listed = len(content).to_bytes(8, "little") + piece_hashes(content, blake3)
    assert content_name(listed, blake3) != content_name(content, blake3)


def test_the_size_cannot_be_lied_about() -> None:
    content = memoryview(bytes(3 * PIECE))
    hashes = piece_hashes(content, blake3)
    assert name_of_pieces(3 * PIECE - 1, hashes, blake3) != content_name(content, blake3)
