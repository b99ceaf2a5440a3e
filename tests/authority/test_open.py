"""An authority is opened by its url, whatever its kind."""

import pytest

from folkmoot.authority.open import open_authority, split_url
from folkmoot.authority.server.client import ServerAuthority
from folkmoot.host.signing import Identity


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("127.0.0.1:7400", ("server", "127.0.0.1:7400")),
        ("moot.example:7400", ("server", "moot.example:7400")),
        ("[::1]:7400", ("server", "[::1]:7400")),
        ("store:7400", ("server", "store:7400")),  # a host may be called so
        ("server://moot.example:7400", ("server", "moot.example:7400")),
        ("store://moot.example:7400", ("store", "moot.example:7400")),
        ("solana:devnet/account", ("solana", "devnet/account")),
    ],
)
def test_a_url_says_what_kind_of_authority_it_is(url: str, parts: tuple[str, str]) -> None:
    assert split_url(url) == parts


@pytest.mark.parametrize("url", ["", "moot", "moot:", "server://"])
def test_a_url_without_a_place_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected host:port"):
        split_url(url)


def test_a_host_without_a_port_is_told_so() -> None:
    with pytest.raises(ValueError, match=r"moot\.example: the port is missing.*moot\.example:7400"):
        split_url("moot.example")


async def test_a_server_is_opened_by_its_address() -> None:
    authority = open_authority("server://127.0.0.1:1", "moot", Identity.random())
    assert isinstance(authority, ServerAuthority)
    assert authority.address == "127.0.0.1:1"
    await authority.close()


def test_an_unknown_kind_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ValueError, match=r"no authority 'ledger'.*server://"):
        open_authority("ledger:devnet/account", "moot", Identity.random())
