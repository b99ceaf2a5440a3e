"""An authority by its url: the one place where its kinds are told apart.

    host:port, server://host:port               a server keeps the run's state
    store:tcp://host:port                       it is in a shared store, here a torch TCPStore
    store:etcd://host:port[,host:port…]         the same, in etcd
    solana:run_id@http://host:port              a program on Solana keeps it

Another kind is a function in `KINDS`.
"""

from collections.abc import Callable

from folkmoot.authority import Authority
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls

Opener = Callable[[str, str, Identity, ClientTls | None, bool], Authority]


def _server(
    place: str, run_id: str, identity: Identity, tls: ClientTls | None, member: bool
) -> Authority:
    from folkmoot.authority.server.client import ServerAuthority

    return ServerAuthority(place, run_id, identity, tls, member)


def _store(
    place: str, run_id: str, identity: Identity, tls: ClientTls | None, member: bool
) -> Authority:
    from folkmoot.authority.store.client import StoreAuthority

    if tls is not None:
        raise ValueError(
            "a store has no --tls options: its url says how to reach it, as etcds://… does with TLS"
        )
    return StoreAuthority(place, run_id, identity)


def _solana(
    place: str, run_id: str, identity: Identity, tls: ClientTls | None, member: bool
) -> Authority:
    try:
        from folkmoot.authority.solana.client import SolanaAuthority
    except ImportError as error:
        raise ValueError(f"{error}: a run on Solana needs pip install 'folkmoot[solana]'") from None

    if tls is not None:
        raise ValueError(
            "a run on Solana has no --tls options: its url says how, as https://… does with TLS"
        )
    return SolanaAuthority(place, run_id, identity)


KINDS: dict[str, Opener] = {"server": _server, "store": _store, "solana": _solana}


def open_authority(
    url: str, run_id: str, identity: Identity, tls: ClientTls | None = None, member: bool = False
) -> Authority:
    """Who keeps the state of run `run_id`. Nothing is sent before it is used.

    A `member` takes part; a server lets only one at a time do so with a key.
    """
    kind, place = split_url(url)
    if kind not in KINDS:
        known = ", ".join(f"{name}://…" for name in KINDS)
        raise ValueError(
            f"{url}: this version knows no authority '{kind}'; give host:port, or one of: {known}"
        )
    return KINDS[kind](place, run_id, identity, tls, member)


def split_url(url: str) -> tuple[str, str]:
    """(kind, place): what ends in :port and names no kind is a server."""
    before, colon, after = url.partition(":")
    if "//" not in after and after.rpartition(":")[2].isdecimal():
        return "server", url
    if not colon and before and "/" not in before:
        raise ValueError(f"{url}: the port is missing; expected host:port, mostly {url}:7400")
    if not colon or not after.strip("/"):
        raise ValueError(f"{url!r} does not say where a run's state is kept: expected host:port")
    return before, after.removeprefix("//")
