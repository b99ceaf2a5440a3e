"""How content is named: by its bytes, and so that one piece can be checked before the rest is
there.

Content of at most `PIECE` bytes is named by its BLAKE3 hash. Longer content is cut into pieces of
`PIECE` bytes, the last one shorter; its name is the hash of its length and its pieces' hashes,
taken under a context of its own, so that no content can pass for another's list of pieces.

The BLAKE3 constructor is handed in: the core imports no library for it.
"""

from collections.abc import Callable
from typing import Any

PIECE = 256 * 1024
NAME_BYTES = 32
CONTEXT = "folkmoot 2026 pieces of content v1"

Hasher = Callable[..., Any]
"""`blake3.blake3`, or anything that is called and answers `digest()` like it."""


def piece_count(size: int) -> int:
    """Empty content is one empty piece."""
    return max(1, -(-size // PIECE))


def piece_hashes(content: memoryview, blake3: Hasher) -> bytes:
    """The hashes of all pieces, one after the other."""
    return b"".join(
        blake3(content[at : at + PIECE]).digest() for at in range(0, max(1, len(content)), PIECE)
    )


def name_of_pieces(size: int, hashes: bytes, blake3: Hasher) -> bytes:
    """The name of content of `size` bytes with these piece hashes."""
    if len(hashes) == NAME_BYTES:
        return hashes
    listed = size.to_bytes(8, "little") + hashes
    name: bytes = blake3(listed, derive_key_context=CONTEXT).digest()
    return name


def content_name(content: bytes | bytearray | memoryview, blake3: Hasher) -> bytes:
    """The name of `content`."""
    view = memoryview(content).cast("B")
    return name_of_pieces(len(view), piece_hashes(view, blake3), blake3)
