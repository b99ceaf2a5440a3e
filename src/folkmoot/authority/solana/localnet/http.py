"""As much of HTTP/1.1 as JSON-RPC needs: one POST after the other on a connection."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from folkmoot.authority.solana.post import read_head

BODY_MAX = 64 * 1024
IDLE_SECONDS = 60.0
Answer = Callable[[bytes], Awaitable[bytes]]


class BadRequest(Exception):
    """What was sent is no request that is answered here."""


async def serve_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer
) -> None:
    """Answer requests until the other end hangs up, says nothing for long, or makes no sense."""
    try:
        while True:
            async with asyncio.timeout(IDLE_SECONDS):
                body, keep = await _request(reader)
            _write(writer, "200 OK", await answer(body))
            await writer.drain()
            if not keep:
                return
    except BadRequest as error:
        _write(writer, "400 Bad Request", str(error).encode())
    except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
        pass  # the other end is gone
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError, OSError):
            await writer.wait_closed()


async def _request(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    try:
        first, fields = await read_head(reader)
    except asyncio.LimitOverrunError:
        raise BadRequest("the head of the request is too long") from None
    if not first.startswith("POST "):
        raise BadRequest("send JSON-RPC by POST")
    length = fields.get("content-length", "")
    if not length.isdecimal() or int(length) > BODY_MAX:
        raise BadRequest(f"a request has a Content-Length of at most {BODY_MAX}")
    keep = fields.get("connection", "").lower() != "close"
    return await reader.readexactly(int(length)), keep


def _write(writer: asyncio.StreamWriter, status: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
