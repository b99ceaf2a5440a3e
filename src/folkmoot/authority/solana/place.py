"""Where a run on Solana is: `solana:<run_id>@<rpc-url>[,<rpc-url>…]`.

After `?`, in any of the urls, `program=<address>` says where the program is and `price=<number>`
what we pay a compute unit, in millionths of a lamport. What else is there is the node's own, as the
keys are that some want.
"""

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

from solders.pubkey import Pubkey

from folkmoot.authority.solana.instructions import PROGRAM_ID

EXPECTED = "expected solana:<run_id>@http://host:port"
PRICE_MAX = 10**7  # 0.008 SOL for a transaction, sixteen hundred times the base fee


class Place(NamedTuple):
    run_id: str
    urls: tuple[str, ...]  # of JSON-RPC, in the order in which they are tried
    program: Pubkey
    price: int = 0  # of a compute unit, in millionths of a lamport: the priority fee

    @property
    def shown(self) -> str:
        """As it may be shown: without the keys that a node's url may have."""
        return f"solana:{self.run_id}@{','.join(map(named, self.urls))}"

    @property
    def loopback(self) -> bool:
        """Whether it is a network on this machine, whose lamports are worth nothing."""
        return all(urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1") for url in self.urls)


def parse_place(text: str) -> Place:
    """What follows `solana:`; raises `ValueError` with a sentence."""
    run_id, at, rest = text.partition("@")
    urls = tuple(rest.split(","))
    if not run_id or not at or not all(_is_url(url) for url in urls):
        raise ValueError(f"solana:{text}: {EXPECTED}, more urls after commas")
    ours: dict[str, str] = {}
    urls = tuple(_without(url, ours) for url in urls)
    try:
        program = Pubkey.from_string(ours["program"]) if "program" in ours else PROGRAM_ID
        price = int(ours.get("price", "0"))
    except ValueError:
        price = -1
    if not 0 <= price <= PRICE_MAX:
        raise ValueError(
            f"solana:{text}: after ? expected program=<address>, or price=<number> with 0 to"
            f" {PRICE_MAX} millionths of a lamport"
        )
    return Place(run_id, urls, program, price)


def _without(url: str, ours: dict[str, str]) -> str:
    """The url as its node is asked; what is said to us goes to `ours`."""
    parts, theirs = urlsplit(url), []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in ("program", "price"):
            ours[name] = value
        else:
            theirs.append((name, value))
    return parts._replace(query=urlencode(theirs)).geturl()


def named(url: str) -> str:
    """A node as it is told of: its path and query may be somebody's secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def websocket_url(url: str) -> str:
    """Where subscriptions are: one port above, or the same place where no port is named."""
    parts = urlsplit(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    if parts.port is None:
        return parts._replace(scheme=scheme).geturl()
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return parts._replace(scheme=scheme, netloc=f"{host}:{parts.port + 1}").geturl()


def _is_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        return known and parts.port not in (0, 65535)  # subscriptions are at the port above
    except ValueError:
        return False
