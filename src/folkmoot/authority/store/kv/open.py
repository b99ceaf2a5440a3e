"""A store by its url: the one place where its kinds are told apart.

    tcp://host:port                       a torch TCPStore (`folkmoot store serve`)
    etcd://host:port[,host:port…]         etcd, any of its members
    etcds://host:port[,host:port…]        the same over TLS
    memory://name                         this process's memory, for tests

After a `?`, joined by `&`: `timeout=SECONDS` for one operation; with TLS `ca=`, `cert=` and `key=`,
files in PEM: whom to trust (else the authorities of this machine), and our own for mutual TLS. An
etcd that knows users takes `user:password@` before its addresses.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, unquote

import msgspec

from folkmoot.authority.store.kv import Store
from folkmoot.authority.store.kv.prefix import PrefixStore

# For one operation, and for a store to start, in seconds.
TIMEOUT, PATIENCE = 10.0, 30.0


class StoreAddress(msgspec.Struct, frozen=True):
    """What a url says."""

    kind: str
    addresses: tuple[tuple[str, int], ...] = ()
    name: str = ""
    user: str = ""
    password: str = ""
    options: dict[str, str] = {}

    @property
    def timeout(self) -> float:
        """Seconds for one operation."""
        return float(self.options.get("timeout", TIMEOUT))


def _memory(place: StoreAddress, prefix: str, patience: float) -> Store:
    from folkmoot.authority.store.kv.memory import MemoryStore

    return MemoryStore(place.name)


def _tcp(place: StoreAddress, prefix: str, patience: float) -> Store:
    from folkmoot.authority.store.kv.tcp import TcpStore

    if len(place.addresses) != 1:
        raise ValueError("a TCPStore is one server: tcp://host:port; of several members is etcd")
    return TcpStore(*place.addresses[0], place.timeout, patience)


def _etcd(place: StoreAddress, prefix: str, patience: float) -> Store:
    from folkmoot.authority.store.kv.etcd import EtcdStore
    from folkmoot.authority.store.kv.etcd_cluster import Cluster
    from folkmoot.host.tls import ClientTls

    ca, cert, key = (Path(name) if (name := place.options.get(option)) else None for option in TLS)
    if (cert is None) != (key is None):
        raise ValueError("our certificate and its key go together: give both cert= and key=")
    tls = ClientTls(ca, cert, key) if place.kind == "etcds" else None
    cluster = Cluster(place.addresses, place.timeout, tls, place.user, place.password)
    return EtcdStore(cluster, f"{prefix}/.connections/" if prefix else ".connections/", patience)


TLS = ("ca", "cert", "key")
KINDS: dict[str, Callable[[StoreAddress, str, float], Store]] = {
    "tcp": _tcp,
    "etcd": _etcd,
    "etcds": _etcd,
    "memory": _memory,
}
OPTIONS = {
    "tcp": {"timeout"},
    "etcd": {"timeout"},
    "etcds": {"timeout", *TLS},
    "memory": set[str](),
}


def open_store(url: str, prefix: str = "", patience: float = PATIENCE) -> Store:
    """Connect to a store. With `prefix`, to the part of it that this run or job has for itself.

    It may still be starting: `patience` is for how many seconds we try. ValueError says what is
    wrong with the url, `StoreGone` that nobody answers there.
    """
    store = KINDS[(place := parse_url(url)).kind](place, prefix, patience)
    return PrefixStore(store, prefix) if prefix else store


def parse_url(url: str) -> StoreAddress:
    kind, separator, rest = url.partition("://")
    if not separator or kind not in KINDS:
        known = ", ".join(f"{name}://" for name in KINDS)
        # What follows may hold a password.
        named = f"{kind}://…" if separator else url
        raise ValueError(f"{named!r} names no store; a store begins with one of {known}")
    where, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(options.keys() - OPTIONS[kind]):
        known = ", ".join(sorted(OPTIONS[kind])) or "none"
        raise ValueError(f"{kind}:// has no option {unknown[0]!r}; known: {known}")
    _check_timeout(options.get("timeout", str(TIMEOUT)))
    where = where.rstrip("/")
    if kind == "memory":
        return StoreAddress(kind, name=where)
    account, _, addresses = where.rpartition("@")
    user, _, password = account.partition(":")
    return StoreAddress(
        kind,
        tuple(_address(one, kind) for one in addresses.split(",")),
        user=unquote(user),
        password=unquote(password),
        options=options,
    )


def _address(text: str, kind: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address; expected {kind}://host:port")
    return host, int(port)


def _check_timeout(text: str) -> None:
    try:
        good = 0 < float(text) < float("inf")
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"timeout={text}: expected a number of seconds above 0")
