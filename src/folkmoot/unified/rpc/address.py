"""Where an actor listens: `unix:/folder/name` on one machine, `tcp:host:port` between machines."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

# What Linux takes as a socket's path. A longer one is reached through its opened folder.
LONGEST_PATH = 100
BUFFER = 1024 * 1024
BACKLOG = 512
# Without a FIN (a cable, a lost machine) a connection ends after about these seconds.
KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5}
UNACKNOWLEDGED_MS = 15_000


def split(address: str) -> tuple[str, str]:
    """(kind, rest) of an address, or ValueError with what is expected."""
    kind, colon, rest = address.partition(":")
    if kind not in ("unix", "tcp") or not colon or not rest:
        raise ValueError(f"{address!r} is no address: expected unix:/path or tcp:host:port")
    return kind, rest


def host_and_port(rest: str) -> tuple[str, int]:
    host, colon, port = rest.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"'tcp:{rest}' is no address: expected tcp:host:port")
    return host.strip("[]"), int(port)


def listen(address: str) -> tuple[socket.socket, str]:
    """A listening socket, and its address with the port it got. The folder is made if missing."""
    kind, rest = split(address)
    if kind == "unix":
        return _listen_unix(Path(rest)), address
    host, port = host_and_port(rest)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listening.setblocking(False)
    written = f"[{host}]" if ":" in host else host
    return listening, f"tcp:{written}:{listening.getsockname()[1]}"


def connect(address: str, seconds: float) -> socket.socket:
    """A connected, blocking socket; OSError when nobody listens there."""
    kind, rest = split(address)
    if kind == "tcp":
        stream = socket.create_connection(host_and_port(rest), seconds)
        if stream.getsockname() == stream.getpeername():
            # Where nobody listens at a port of the system's own choice, a socket can meet itself.
            stream.close()
            raise ConnectionRefusedError("nobody listens there")
        return tune(stream)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.settimeout(seconds)
    try:
        with _short(Path(rest)) as path:
            stream.connect(path)
    except BaseException:
        stream.close()
        raise
    return tune(stream)


def tune(stream: socket.socket) -> socket.socket:
    """No waiting for more to send, and an end to connections whose other end is silent."""
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        stream.setsockopt(socket.SOL_SOCKET, option, BUFFER)
    if stream.family != socket.AF_UNIX:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        options = {**KEEPALIVE, "TCP_USER_TIMEOUT": UNACKNOWLEDGED_MS}
        for name, value in options.items():
            if hasattr(socket, name):  # not everywhere
                stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return stream


def forget(address: str) -> None:
    """Remove what a listening socket leaves in its folder."""
    kind, rest = split(address)
    if kind == "unix":
        Path(rest).unlink(missing_ok=True)


def _listen_unix(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(path) as short:
            listening.bind(short)
        path.chmod(0o600)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
