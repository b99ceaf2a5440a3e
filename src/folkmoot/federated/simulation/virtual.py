"""One process of a simulation: many virtual participants.

`python -m folkmoot.federated.simulation.virtual` with its `Share` in JSON on the command line. A
virtual participant finds its number in FOLKMOOT_PARTICIPANT, and how many there are in
FOLKMOOT_PARTICIPANTS, while it is made.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import msgspec

from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.policy import ALL, Policy
from folkmoot.host.memory import keep_memory
from folkmoot.host.named_code import load_code
from folkmoot.host.signing import Identity

#: Participants that train at the same time in one process.
AT_ONCE = 2


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The participants of one process: `first`, `first + step`, … of `count`."""

    address: str
    run_id: str
    coordinator: str
    participant: str
    count: int
    first: int
    step: int
    seed: str

    @property
    def numbers(self) -> range:
        return range(self.first, self.count, self.step)


def virtual_identity(seed: str, number: int) -> Identity:
    """The same key for the same seed and number."""
    return Identity(sha256(f"folkmoot virtual participant {seed} {number}".encode()).digest())


async def take_parts(share: Share) -> None:
    """Run every participant of a share until the federation has finished."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(AT_ONCE))
    settings = Settings(
        address=share.address,
        run_id=share.run_id,
        longest_pause=1.0,
        policy=Policy(buckets=(ALL,), coordinator=share.coordinator),
    )
    made, os.environ["FOLKMOOT_PARTICIPANTS"] = load_code(share.participant), str(share.count)
    gc.disable()  # a thousand participants are made of long-lived objects
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in share.numbers:
                os.environ["FOLKMOOT_PARTICIPANT"] = str(number)
                connect = functools.partial(_connect, virtual_identity(share.seed, number))
                tasks.create_task(take_part(made(), settings, connect))
    finally:
        gc.enable()


def _connect(identity: Identity, address: str, run_id: str, _: Identity, *more: Any) -> Connection:
    """A connection under a virtual participant's own key; gRPC joins equal ones on the wire."""
    return Connection(address, run_id, identity, *more)


def main() -> None:
    keep_memory()
    share = msgspec.json.decode(sys.argv[1], type=Share)
    asyncio.run(take_parts(share))


if __name__ == "__main__":
    main()
