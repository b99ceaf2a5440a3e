"""Where a run on Solana is: `solana:<run_id>@<rpc-url>[,<rpc-url>…][?program=<address>]`."""

from typing import NamedTuple
from urllib.parse import urlsplit

from solders.pubkey import Pubkey

from folkmoot.authority.solana.instructions import PROGRAM_ID

EXPECTED = "expected solana:<run_id>@http://host:port"


class Place(NamedTuple):
    run_id: str
    urls: tuple[str, ...]  # of JSON-RPC, in the order in which they are tried
    program: Pubkey

    @property
    def loopback(self) -> bool:
        """Whether it is a network on this machine, whose lamports are worth nothing."""
        return all(urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1") for url in self.urls)


def parse_place(text: str) -> Place:
    """What follows `solana:`; raises `ValueError` with a sentence."""
    run_id, at, rest = text.partition("@")
    rest, _, query = rest.partition("?")
    urls = tuple(rest.split(","))
    if not run_id or not at or not all(_is_url(url) for url in urls):
        raise ValueError(f"solana:{text}: {EXPECTED}, more urls after commas")
    if not query:
        return Place(run_id, urls, PROGRAM_ID)
    name, _, address = query.partition("=")
    try:
        if name != "program":
            raise ValueError(name)
        return Place(run_id, urls, Pubkey.from_string(address))
    except ValueError:
        raise ValueError(f"solana:{text}: after ? only program=<address> may follow") from None


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
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
