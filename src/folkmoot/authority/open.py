"""An authority by its url: the one place where its kinds are told apart.

    host:port, server://host:port    a server keeps the run's state

Another kind is a function in `KINDS`.
"""

from collections.abc import Callable

from folkmoot.authority import Authority
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls

Opener = Callable[[str, str, Identity, ClientTls | None], Authority]


def _server(place: str, run_id: str, identity: Identity, tls: ClientTls | None) -> Authority:
    from folkmoot.authority.server.client import ServerAuthority

    return ServerAuthority(place, run_id, identity, tls)


KINDS: dict[str, Opener] = {"server": _server}


def open_authority(
    url: str, run_id: str, identity: Identity, tls: ClientTls | None = None
) -> Authority:
    """Who keeps the state of run `run_id`. Nothing is sent before it is used."""
    kind, place = split_url(url)
    if kind not in KINDS:
        known = ", ".join(f"{name}://…" for name in KINDS)
        raise ValueError(
            f"{url}: this version knows no authority '{kind}'; give host:port, or one of: {known}"
        )
    return KINDS[kind](place, run_id, identity, tls)


def split_url(url: str) -> tuple[str, str]:
    """(kind, place): what ends in :port and names no kind is a server."""
    before, colon, after = url.partition(":")
    if "//" not in after and after.rpartition(":")[2].isdecimal():
        return "server", url
    if not colon or not after.strip("/"):
        raise ValueError(f"{url!r} does not say where a run's state is kept: expected host:port")
    return before, after.removeprefix("//")
