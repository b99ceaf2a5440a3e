"""Bind an iroh endpoint as the configuration says, and say where it can be reached."""

import asyncio
import socket
from contextlib import suppress

from iroh import (
    Endpoint,
    EndpointAddr,
    EndpointBuilder,
    EndpointId,
    IrohError,
    RelayMode,
)

from folkmoot.exchange.peer.address import Address, decode_address
from folkmoot.exchange.peer.config import PeerConfig
from folkmoot.exchange.peer.describe_error import describe_error
from folkmoot.exchange.peer.wire import ALPN


async def bind(secret: bytes, config: PeerConfig) -> Endpoint:
    """An endpoint whose id is the public key of `secret`."""
    builder = EndpointBuilder()  # type: ignore[no-untyped-call]
    if config.discovery:
        builder.apply_n0()
    else:
        builder.apply_minimal()
    builder.relay_mode(_relay_mode(config.relays))
    try:
        builder.bind_addr(config.bind)
        if config.bind.startswith("127.") and _has_ipv6_loopback():
            # Unless told, it would also listen on every IPv6 address of the machine.
            builder.bind_addr("[::1]:0")
        builder.alpns([ALPN])
        builder.secret_key(secret)
        endpoint = await builder.bind()
    except IrohError as error:
        raise OSError(
            f"The peer could not listen on {config.bind}: {describe_error(error)}. Is the port "
            "taken, or the address not one of this machine?"
        ) from error
    for external in config.advertise:
        await endpoint.add_external_addr(external)
    return endpoint


def _has_ipv6_loopback() -> bool:
    """Many containers have none."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _relay_mode(relays: tuple[str, ...]) -> RelayMode:
    if not relays:
        return RelayMode.disabled()
    if relays == ("default",):
        return RelayMode.default_mode()
    try:
        return RelayMode.custom_from_urls(list(relays))
    except IrohError as error:
        raise ValueError(
            f"`relays` must be urls, or only 'default': {describe_error(error)}"
        ) from error


async def reachable_at(endpoint: Endpoint, config: PeerConfig) -> Address:
    """Direct addresses and, when relays are on, the home relay (waited for a little)."""
    if config.relays:
        with suppress(TimeoutError):  # no relay answers: direct addresses may do
            async with asyncio.timeout(config.dial_time):
                await endpoint.online()
    if config.bind.startswith("127."):
        direct = [at for at in endpoint.bound_sockets() if at.startswith("127.")]
    else:
        direct = endpoint.addr().direct_addresses()
    return Address(tuple(direct), endpoint.addr().relay_url())


async def answers(endpoint: Endpoint, peer: bytes, address: bytes, seconds: float) -> bool:
    """Whether a peer can be reached. It is asked for a protocol that it does not have: that it says
    so is answer enough, and it need not decide whether to admit us."""
    try:
        async with asyncio.timeout(seconds):
            await endpoint.connect(to_dial(peer, address), b"folkmoot/reachable")
    except (TimeoutError, ValueError):
        return False
    except IrohError as error:
        return "timed out" not in describe_error(error)
    return True


def to_dial(peer: bytes, address: bytes) -> EndpointAddr:
    """What to dial; ValueError when `address` is none."""
    known = decode_address(address)
    try:
        return EndpointAddr(EndpointId.from_bytes(peer), known.relay, list(known.direct))
    except IrohError as error:
        raise ValueError(f"A peer's address cannot be dialled: {describe_error(error)}") from error
