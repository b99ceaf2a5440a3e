"""What gRPC takes of a message that nobody asked for yet, counted by a client of HTTP/2 itself."""

import asyncio
import struct
from pathlib import Path
from typing import NamedTuple

import pytest

from authority.served_run import serving
from folkmoot.authority.server import admission, wire

DATA, HEADERS, SETTINGS, PING, WINDOW = 0, 1, 4, 6, 8
ACK, END_HEADERS = 1, 4
INITIAL_WINDOW = 4
# The most bytes in a frame, and those of a message that a member may send.
FRAME, LONG = 16_384, wire.MAX_REQUEST // 2


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    body: bytes

    def encode(self) -> bytes:
        head = struct.pack(">IBBI", len(self.body), self.kind, self.flags, self.stream)
        return head[1:] + self.body


def headers(method: str) -> bytes:
    """Of a call, each as a literal that nobody remembers (RFC 7541, 6.2.2)."""
    named = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/{wire.SERVICE}/{method}",
        ":authority": "moot",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    texts = (text.encode() for item in named.items() for text in item)
    literals = [bytes([len(text)]) + text for text in texts]
    return b"".join(
        b"\0" + name + value for name, value in zip(literals[::2], literals[1::2], strict=True)
    )


class Caller:
    """Sends one message without end, as far as the server lets it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._windows = [65_535, 65_535]  # of the connection, of the stream

    def say(self, kind: int, flags: int, stream: int, body: bytes = b"") -> None:
        self._writer.write(Frame(kind, flags, stream, body).encode())

    async def hear(self) -> Frame:
        size, kind, flags, stream = struct.unpack(
            ">IBBI", b"\0" + await self._reader.readexactly(9)
        )
        frame = Frame(kind, flags, stream, await self._reader.readexactly(size))
        if kind == WINDOW:
            self._windows[stream] += int.from_bytes(frame.body, "big")
        elif kind == SETTINGS and not flags & ACK:
            settings = dict(struct.iter_unpack(">HI", frame.body))
            self._windows[1] += settings.get(INITIAL_WINDOW, 65_535) - 65_535
            self.say(SETTINGS, ACK, 0)
        return frame

    async def until(self, kind: int) -> None:
        while (await self.hear()).kind != kind:
            pass

    async def sent_unread(self, method: str) -> int:
        """How many bytes of a message the server takes."""
        self._writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        self.say(SETTINGS, 0, 0)
        await self.until(SETTINGS)
        self.say(HEADERS, END_HEADERS, 1, headers(method))
        # gRPC's own head of a message: not compressed, and longer than anything that is read ahead.
        body, sent = b"\0" + struct.pack(">I", LONG) + bytes(LONG), 0
        while sent < len(body) and min(self._windows) > 0:
            while piece := body[sent:][: min(*self._windows, FRAME)]:
                self.say(DATA, 0, 1, piece)
                sent += len(piece)
                self._windows = [window - len(piece) for window in self._windows]
            # What is answered now was decided with all of that at hand.
            self.say(PING, 0, 0, bytes(8))
            await self.until(PING)
        return sent


async def test_no_more_of_a_message_is_taken_before_it_is_admitted_than_a_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "READING", 0)
    async with serving(tmp_path) as server, asyncio.timeout(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        taken = await Caller(reader, writer).sent_unread("Submit")
        assert taken <= admission.LOOKAHEAD
        writer.close()
