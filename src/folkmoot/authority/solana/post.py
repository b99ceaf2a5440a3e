"""One POST and its answer, bounded in bytes, and in time from the first packet to the last.

Who answers is a stranger: it is not followed elsewhere, nothing is unpacked, and an answer that
does not end is given up.
"""

import asyncio
import ssl
from functools import cache
from urllib.parse import SplitResult, urlsplit

TIMEOUT = 10.0
HEAD_MAX = 16 * 1024
ANSWER_MAX = 4 * 1024 * 1024
CHUNK_MIN = 1024  # what a smaller chunk counts for: each costs us as much


async def post(url: str, body: bytes) -> bytes:
    """What the node at `url` answers; raises `OSError` with a reason when it does not."""
    parts = urlsplit(url)
    secured = trusted() if parts.scheme == "https" else None
    port = parts.port or (443 if secured else 80)
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(
                parts.hostname, port, ssl=secured, limit=HEAD_MAX
            )
            try:
                writer.write(_request(parts, body))
                return await _answer(reader)
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise OSError(f"no whole answer in {TIMEOUT:g} s") from None
    except asyncio.IncompleteReadError:
        raise OSError("it hung up before its answer was whole") from None
    except asyncio.LimitOverrunError:
        raise OSError("a line of its answer is too long") from None


@cache
def trusted() -> ssl.SSLContext:
    """Whose certificates count: those of this machine, or of SSL_CERT_FILE."""
    return ssl.create_default_context()


def _request(parts: SplitResult, body: bytes) -> bytes:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = parts.netloc.rpartition("@")[2]
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: folkmoot\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """The first line of a request or an answer, and its fields."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _answer(reader: asyncio.StreamReader) -> bytes:
    first, fields = await read_head(reader)
    _, _, status = first.partition(" ")
    if not first.startswith("HTTP/1.") or not status.startswith("200"):
        raise OSError(f"HTTP {status}" if first.startswith("HTTP/") else "it does not speak HTTP")
    if "chunked" in fields.get("transfer-encoding", "").lower():
        return await _chunks(reader)
    length = fields.get("content-length")
    if length is None:
        return await _until_it_ends(reader)
    return await reader.readexactly(_bounded(length, 10, 0))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    whole, counted = bytearray(), 0
    while True:
        line = (await reader.readuntil(b"\r\n")).decode("latin-1")
        size = _bounded(line.partition(";")[0], 16, counted)
        if size == 0:
            return bytes(whole)
        whole += await reader.readexactly(size)
        counted += max(size, CHUNK_MIN)
        await reader.readuntil(b"\r\n")


async def _until_it_ends(reader: asyncio.StreamReader) -> bytes:
    whole = bytearray()
    while more := await reader.read(HEAD_MAX):
        _bounded(str(len(more)), 10, len(whole))
        whole += more
    return bytes(whole)


def _bounded(length: str, base: int, before: int) -> int:
    try:
        size = int(length, base)
    except ValueError:
        raise OSError("it does not say how long its answer is") from None
    if not 0 <= size <= ANSWER_MAX - before:
        raise OSError(f"an answer of more than {ANSWER_MAX} bytes")
    return size
