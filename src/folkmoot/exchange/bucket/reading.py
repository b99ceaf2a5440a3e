"""An object of a store, read whole, or in parts side by side where one connection is slow."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

import obstore
from obstore import exceptions

from folkmoot.exchange.bucket.direct import Direct, NotGiven, Part
from folkmoot.exchange.bucket.errors import BrokenOff
from folkmoot.exchange.bucket.folder import PART

AT_ONCE = 4
"""Parts of one object that are on their way."""
PIECE = 1 << 18
"""Of what is read directly, which fits a core's cache: what is done with it next costs less."""
FAST = 50e6
"""Bytes a second over one connection that more connections would not make more."""


class Reading(NamedTuple):
    """How many bytes an object has, and its pieces in their order, read as they are asked for.

    A piece is good until the next one is asked for.
    """

    size: int
    pieces: Iterator[memoryview]


Room = Callable[[int], memoryview | None]
"""Is told the size of an object, and may have memory for all of it; pieces are then of that."""


def no_room(size: int) -> None:
    """For who looks at one piece after the other."""


def read_whole(store: Any, key: str, chunk: int = PART) -> Reading:
    """In one answer, in pieces of about `chunk` bytes."""
    found = obstore.get(store, key)
    return Reading(found.meta["size"], map(memoryview, found.stream(min_chunk_size=chunk)))


def read_in_parts(store: Any, url: str, key: str) -> Reading:
    """The first part tells how many there are."""
    try:
        first = obstore.get(store, key, options={"range": (0, PART)})
    except exceptions.BaseError as error:
        # An empty object has no range, and some servers give a small one whole.
        if "416" not in str(error) and "non-partial" not in str(error):
            raise
        return read_whole(store, key)
    size, tag = first.meta["size"], first.meta["e_tag"]

    def part(start: int) -> memoryview:
        # Of the same object: who replaces it meanwhile must not be mixed with it.
        same: Any = {"range": (start, min(start + PART, size)), "if_match": tag}
        try:
            return memoryview(obstore.get(store, key, options=same).bytes())
        except exceptions.PreconditionError:
            raise BrokenOff(url, key, "it was replaced while it was read") from None

    def pieces() -> Iterator[memoryview]:
        if size <= PART:
            yield memoryview(first.bytes())
            return
        # The first one is read while the others are on their way.
        yield from _side_by_side(part, PART, size, lambda: memoryview(first.bytes()))

    return Reading(size, pieces())


def read_direct(direct: Direct, url: str, key: str, room: Room) -> Reading:
    """The first part tells how long the object is, and how fast it comes.

    Raises `NotGiven` when not even the first part could be had.
    """
    opened, asked = ExitStack(), time.monotonic()
    with ExitStack() as unread:
        unread.push(opened)
        first = opened.enter_context(direct.part(key, 0, PART))
        size, tag = first.size, first.tag
        if first.start != 0 or first.end > size or (first.end < size and not tag):
            raise NotGiven("a part that does not tell what it is of")
        body = room(size)
        unread.pop_all()

    def rest(start: int, end: int, stack: ExitStack) -> Part:
        # Of the same object: who replaces it meanwhile must not be mixed with it.
        found = stack.enter_context(direct.part(key, start, end, tag))
        if (found.start, found.end, found.size) != (start, end, size):
            raise NotGiven("another part than was asked for")
        return found

    def part(start: int) -> memoryview:
        with ExitStack() as stack:
            found = rest(start, min(start + PART, size), stack)
            body = memoryview(bytearray(found.end - start))
            found.read_into(body)
            return body

    def pieces() -> Iterator[memoryview]:
        try:
            with opened:
                yield from _through(first, body)
            if first.end == size:
                return
            if first.end > FAST * (time.monotonic() - asked):
                with ExitStack() as stack:
                    yield from _through(rest(first.end, size, stack), body)
            else:
                yield from _side_by_side(part, first.end, size)
        except (NotGiven, OSError) as error:
            raise BrokenOff(url, key, f"it broke off, or was replaced: {error}") from error

    return Reading(size, pieces())


def _through(part: Part, body: memoryview | None) -> Iterator[memoryview]:
    """Its pieces, in their place in `body` if that is there."""
    used = memoryview(bytearray(PIECE if body is None else 0))
    for start in range(part.start, part.end, PIECE):
        end = min(start + PIECE, part.end)
        piece = used[: end - start] if body is None else body[start:end]
        part.read_into(piece)
        yield piece


def _side_by_side(
    part: Callable[[int], memoryview],
    start: int,
    size: int,
    meanwhile: Callable[[], memoryview] | None = None,
) -> Iterator[memoryview]:
    """The parts of an object from `start` on, in their order."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        # So many at most are under way, and in memory, whatever the reader does.
        coming: deque[Future[memoryview]] = deque()
        for begin in range(start, size, PART):
            coming.append(threads.submit(part, begin))
            if begin == start and meanwhile is not None:
                yield meanwhile()
            if len(coming) >= AT_ONCE:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
