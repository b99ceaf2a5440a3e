"""An object of a store, read whole, or in parts side by side where one connection is slow."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import obstore
from obstore import exceptions

from folkmoot.exchange.bucket.errors import BrokenOff
from folkmoot.exchange.bucket.folder import PART

AT_ONCE = 4
"""Parts of one object that are on their way."""


class Reading(NamedTuple):
    """How many bytes an object has, and its pieces in their order, read as they are asked for."""

    size: int
    pieces: Iterator[memoryview]


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
        with ThreadPoolExecutor(AT_ONCE) as threads:
            # So many at most are under way, and in memory, whatever the reader does.
            coming: deque[Future[memoryview]] = deque()
            for start in range(PART, size, PART):
                coming.append(threads.submit(part, start))
                if start == PART:
                    yield memoryview(first.bytes())
                if len(coming) >= AT_ONCE:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()

    return Reading(size, pieces())
