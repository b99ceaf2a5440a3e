"""Which of this machine's addresses others reach it at. Nothing is sent to find out."""

import fcntl
import socket
import struct
from collections.abc import Iterator

ANY = ("0.0.0.0", "[::]", "::", "")
# A documentation address: the route to it is the one to everywhere else.
ELSEWHERE = "203.0.113.1"
_ADDRESS_OF = 0x8915  # SIOCGIFADDR


def address_towards(host: str) -> str | None:
    """Our address on the way to `host`; None when there is no way, or no such host."""
    try:
        found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    except OSError:
        return None
    for family, kind, protocol, _, target in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return None


def shown_address(listening_at: str) -> str:
    """`host:port` to paste on another machine, for one that listens at `host:port` here."""
    host, _, port = listening_at.rpartition(":")
    if host not in ANY:
        return listening_at
    ours = address_towards(ELSEWHERE) or next(_addresses(), None) or socket.gethostname()
    return f"{ours}:{port}"


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0] or address
    return host.startswith("127.") or host in ("localhost", "[::1]", "::1")


def with_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _addresses() -> Iterator[str]:
    """The IPv4 address of each interface but the loopback; for a machine with no way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                asked = struct.pack("256s", name.encode()[:15])
                address = socket.inet_ntoa(fcntl.ioctl(probe, _ADDRESS_OF, asked)[20:24])
            except OSError:
                continue  # it has none
            if not address.startswith("127."):
                yield address
