"""Where others connect: listens, and lets in who knows the job's secret.

Strangers cost little: a handshake has a fixed length and a deadline, only so many are under way at
once, and nothing of it is decoded.
"""

import contextlib
import errno
import logging
import socket
from collections.abc import Callable

from folkmoot.unified.rpc import address as addresses
from folkmoot.unified.rpc.errors import Unauthorised
from folkmoot.unified.rpc.handshake import MAC, OPENING, FrameKeys, Listener, Seal
from folkmoot.unified.rpc.io_loop import READ, IoLoop, Timer

HANDSHAKE_SECONDS = 10.0
MOST_HANDSHAKES = 256
FILES_SECONDS = 0.2
log = logging.getLogger(__name__)

Seals = tuple[Seal, Seal] | None  # of what is sent and of what comes; None on one machine
Admit = Callable[[socket.socket, Seals], None]


class Entrance:
    """`admit` is given every stream whose other end knows the secret, in the I/O thread."""

    def __init__(self, loop: IoLoop, secret: bytes, admit: Admit) -> None:
        self._loop, self._secret, self._admit = loop, secret, admit
        self.seconds = HANDSHAKE_SECONDS
        self.handshakes: dict[Handshake, None] = {}  # in the order of their beginning
        self._listening: list[tuple[socket.socket, str]] = []

    @property
    def addresses(self) -> list[str]:
        return [address for _, address in self._listening]

    def listen(self, address: str) -> str:
        """Let others connect at `unix:/path` or `tcp:host:port`; the address with its real port."""
        listening, told = addresses.listen(address)
        self._listening.append((listening, told))
        self._loop.soon(
            lambda: self._loop.register(listening, READ, lambda _: self._accept(listening))
        )
        return told

    def close(self) -> None:
        """For the I/O thread: listen no more, and end every handshake."""
        for listening, address in self._listening:
            with contextlib.suppress(KeyError):  # paused
                self._loop.unregister(listening)
            listening.close()
            addresses.forget(address)
        self._listening.clear()
        for handshake in list(self.handshakes):
            handshake.end()

    def _accept(self, listening: socket.socket) -> None:
        try:
            stream, _ = listening.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._pause(listening)
            return
        if len(self.handshakes) >= MOST_HANDSHAKES:
            next(iter(self.handshakes)).end()  # the oldest: who knows the secret is quick
        addresses.tune(stream).setblocking(False)
        started = Handshake(self._loop, stream, self._secret, self._known, self.handshakes)
        started.begin(self.seconds)

    def _pause(self, listening: socket.socket) -> None:
        """No more files may be open: wait for some to be closed, rather than ask all the time."""
        log.warning("no other connection can be taken: too many files are open")
        self._loop.unregister(listening)
        self._loop.after(FILES_SECONDS, lambda: self._listen_again(listening))

    def _listen_again(self, listening: socket.socket) -> None:
        if any(listening is known for known, _ in self._listening):
            self._loop.register(listening, READ, lambda _: self._accept(listening))

    def _known(self, stream: socket.socket, keys: FrameKeys) -> None:
        sealed = stream.family != socket.AF_UNIX
        self._admit(stream, (Seal(keys.listener), Seal(keys.caller)) if sealed else None)


class Handshake:
    """One stranger who may become a peer, in the I/O thread."""

    def __init__(
        self,
        loop: IoLoop,
        stream: socket.socket,
        secret: bytes,
        admit: Callable[[socket.socket, FrameKeys], None],
        others: "dict[Handshake, None]",
    ) -> None:
        self._loop, self._stream, self._others = loop, stream, others
        self._listener = Listener(secret)
        self._admit = admit
        self._read = bytearray()
        self._opened = False
        self._timer: Timer | None = None

    def begin(self, seconds: float) -> None:
        self._others[self] = None
        self._timer = self._loop.after(seconds, self.end)
        self._loop.register(self._stream, READ, self._ready)

    def end(self) -> None:
        self._leave()
        self._stream.close()

    def _leave(self) -> None:
        self._others.pop(self, None)
        self._loop.unregister(self._stream)
        if self._timer is not None:
            self._timer.cancel()

    def _ready(self, _: int) -> None:
        try:
            wanted = MAC if self._opened else OPENING
            received = self._stream.recv(wanted - len(self._read))
            self._read += received
            if not received:
                self.end()
            elif len(self._read) == wanted:
                self._step(bytes(self._read))
        except BlockingIOError:
            pass
        except (OSError, Unauthorised) as error:
            log.info("a connection was refused: %s", error)
            self.end()

    def _step(self, message: bytes) -> None:
        self._read.clear()
        if not self._opened:
            # A hundred bytes fit into the buffer of a new socket; if not, it is no peer of ours.
            self._stream.sendall(self._listener.reply(message))
            self._opened = True
            return
        keys = self._listener.finish(message)
        self._leave()
        self._admit(self._stream, keys)
