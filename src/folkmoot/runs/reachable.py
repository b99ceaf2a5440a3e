"""Where a joining client can be reached by its peers, and whether it reaches them."""

import asyncio
import random
import re
from collections.abc import Callable

from folkmoot.authority.open import split_url
from folkmoot.client import events
from folkmoot.client.reach import told_address
from folkmoot.core.coordinator import Coordinator
from folkmoot.core.identity import short
from folkmoot.exchange.peer import Peer
from folkmoot.host.event_log import Record
from folkmoot.host.routes import address_towards, is_loopback, with_port

# How many of those who are there are asked whether they answer.
ASKED = 8
_HOST = re.compile(r"(?:[^@/]*@)?(?:\w+://)?(?:[^@/]*@)?(\[[^\]]+\]|[^:/,]+)")


def bind_towards(url: str, bind: str | None, relayed: bool) -> str:
    """Where to listen for peers of the run at `url`: on the way to it, unless told otherwise."""
    found = _HOST.match(split_url(url)[1])
    host = found[1].strip("[]") if found else "127.0.0.1"
    ours = address_towards(host) or "127.0.0.1"
    if bind is None:
        return with_port(ours, 0)
    if is_loopback(bind) and not is_loopback(ours) and not relayed:
        raise ValueError(
            f"--bind {bind}: peers on other machines cannot reach this one there, and {host} is"
            f" another machine. Leave --bind out to use {with_port(ours, 0)}"
        )
    return bind


async def check_reach(peer: Peer, state: Coordinator, emit: Callable[[Record], None]) -> None:
    """Say which of those who are there already cannot be reached from here."""
    known = {p.id: p.address for p in state.pending}
    known |= {x.id: x.address for x in state.epoch.clients if not x.left}
    known.pop(peer.id, None)
    asked = random.sample(sorted(known), min(ASKED, len(known)))
    answered = await asyncio.gather(*(peer.answers(other, known[other]) for other in asked))
    silent = [other for other, answers in zip(asked, answered, strict=True) if not answers]
    for other in silent:
        where = told_address(known[other])
        emit(events.PeerUnreachable(short(other), where, "it does not answer"))
    if silent and len(silent) == len(asked):
        emit(
            events.Doing(
                f"reached none of {len(asked)} clients that are there: is UDP let through between"
                " the machines? --bind and --relay say how this one is reached"
            )
        )
