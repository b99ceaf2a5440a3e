"""An address that works on another machine, found without sending anything."""

import socket

import pytest

from folkmoot.host import routes


def test_who_listens_everywhere_is_shown_by_an_address_that_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "address_towards", lambda host: "10.7.0.5")
    assert routes.shown_address("0.0.0.0:7400") == "10.7.0.5:7400"
    assert routes.shown_address("moot.example:7400") == "moot.example:7400"
    monkeypatch.setattr(routes, "address_towards", lambda host: None)
    found = routes.shown_address("0.0.0.0:7400")
    assert not found.startswith("0.0.0.0")


def test_the_way_to_this_machine_is_the_loopback() -> None:
    assert routes.address_towards("127.0.0.1") == "127.0.0.1"
    assert routes.address_towards("no-such-host.invalid") is None
    assert routes.is_loopback("127.0.0.1:0")
    assert not routes.is_loopback("10.7.0.5:0")
    assert routes.with_port("fe80::1", 7) == "[fe80::1]:7"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind((routes.address_towards("127.0.0.1") or "", 0))
