"""Under which address other machines reach this one."""

import os
import socket

from folkmoot.authority.store.kv.open import parse_url

HOST = "FOLKMOOT_HOST"


def own_address(store_url: str) -> str:
    """The address from which this machine reaches the store; `FOLKMOOT_HOST` if it is set.

    Ranks that share a store reach each other where the store sees them, as a rule.
    """
    if given := os.environ.get(HOST):
        return given
    place = parse_url(store_url)
    if not place.addresses:
        return "127.0.0.1"
    host, port = place.addresses[0]
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])
