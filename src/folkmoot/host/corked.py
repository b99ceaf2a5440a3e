"""Bodies in full packets: TCP holds back what does not fill one until there is more, or no more."""

import contextlib
import socket
from collections.abc import Iterator
from typing import Protocol

#: Linux alone has it.
_CORK: int | None = getattr(socket, "TCP_CORK", None)


class _Socket(Protocol):
    """With TLS, or without."""

    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...


@contextlib.contextmanager
def corked(line: _Socket) -> Iterator[None]:
    """Send full packets alone while the block lasts, and then what is left.

    TLS writes each record of 16 KB by itself. Where packets are larger, as they are for the network
    card and on the loopback, the other side would be woken for every one of them.
    """
    _cork(line, 1)
    try:
        yield
    finally:
        _cork(line, 0)


def _cork(line: _Socket, on: int) -> None:
    if _CORK is not None:
        with contextlib.suppress(OSError):  # the line broke, which its owner notices by itself
            line.setsockopt(socket.IPPROTO_TCP, _CORK, on)
