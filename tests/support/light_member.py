"""A member of a run in a store that trains nothing: it says what a member has to say.

    python light_member.py URL RUN_ID SEED [--die-after N] [--wall-clock SECONDS]

It prints a line for every record it follows (version, digest, phase), and ends when the run does.
With `--die-after N` it kills itself N store operations after it won its third record.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, cast

from folkmoot.authority import Authority, Unreachable
from folkmoot.authority.store import keys
from folkmoot.authority.store.client import StoreAuthority
from folkmoot.authority.store.kv import Store, in_steps
from folkmoot.authority.store.record import Step
from folkmoot.core.bloom import bloom_bits
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks


def identity_of(seed: str) -> Identity:
    return Identity(seed.encode().ljust(32, b"\0"))


def witness(state: Coordinator, identity: bytes) -> m.OpportunisticWitness | None:
    """What a witness of the round says that saw nothing; None for who is not elected."""
    place = state.find(identity)
    index = None if place is None else state.index(state.round, place)
    if index is None:
        return None
    proof = state.committee(state.round).get_witness(index)
    if not proof.witness:
        return None
    empty = bytes(bloom_bits(len(state.epoch.clients)) // 8)
    where = (state.epoch_number, state.round.height)
    return m.OpportunisticWitness(identity, *where, proof, empty, empty, bytes(32), bytes(32))


def due(state: Coordinator, identity: bytes) -> m.ClientMessage | None:
    """What the member has to say in this state."""
    place = state.find(identity)
    waits = state.phase in (Phase.WaitingForMembers, Phase.Paused)
    if waits or place is None or state.epoch.clients[place].left:
        return None if state.pending.get(identity) else m.Join(identity, state.run.run_id)
    if state.phase is Phase.Warmup:
        return m.Ready(identity, state.epoch_number)
    if state.phase in (Phase.RoundTrain, Phase.RoundWitness):
        return witness(state, identity)
    return None


async def take_part(authority: Authority, identity: bytes) -> Coordinator:
    """Be a member until the run is finished."""
    signs = asyncio.create_task(_live(authority, identity))
    said: set[tuple[Any, ...]] = set()
    try:
        async for state in authority.watch():
            if state.phase is Phase.Finished:
                return state
            message = due(state, identity)
            what = (type(message), *state.turn)
            if message is None or what in said:
                continue
            while not await _say(authority, message):
                pass
            # One who was silent for too long is not waiting any more, and joins again.
            if not isinstance(message, m.Join):
                said.add(what)
    finally:
        await end_tasks([signs])
    raise AssertionError("an authority is watched without end")


async def _live(authority: Authority, identity: bytes) -> None:
    state = await anext(authority.watch())
    while True:
        await asyncio.sleep(state.run.config.health_check_timeout / 4)
        await _say(authority, m.HealthCheck(identity))


async def _say(authority: Authority, message: m.ClientMessage) -> bool:
    try:
        await authority.submit(message)
        return True
    except Unreachable as error:
        print(f"unreachable: {error}", flush=True)
        return False


class DyingStore:
    """Kills its process so many operations after the third record that it won."""

    def __init__(self, store: Store, after: int) -> None:
        self._store, self._after, self._won = store, after, 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        operation = getattr(self._store, name)

        def call(key: str, *arguments: Any) -> Any:
            if self._won >= 3:
                self._die_in_time()
            result = operation(key, *arguments)
            self._won += name == "compare_set" and key == keys.RECORD and result == arguments[1]
            if self._won >= 3:
                self._die_in_time()
            return result

        return operation if name in ("clone", "close") else call

    def move(self, key: str, *arguments: Any) -> bool:
        """So that it can die in the midst of it."""
        return in_steps.move(cast(Store, self), key, *arguments)

    def _die_in_time(self) -> None:
        if self._after == 0:
            print("killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        self._after -= 1


class Member(StoreAuthority):
    """Prints what it follows."""

    die_after: int | None = None

    def moved(self, step: Step) -> None:
        place = step.place
        print(f"record {place.version} {place.digest.hex()[:16]} {place.state.phase}", flush=True)
        super().moved(step)

    def _open_store(self) -> Store:
        store = super()._open_store()
        return store if self.die_after is None else DyingStore(store, self.die_after)  # type: ignore[return-value]


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("run_id")
    parser.add_argument("seed")
    parser.add_argument("--die-after", type=int)
    parser.add_argument("--wall-clock", type=float, default=0.0)
    asked = parser.parse_args()
    true_time, true_time_ns = time.time, time.time_ns
    time.time = lambda: true_time() + asked.wall_clock
    time.time_ns = lambda: true_time_ns() + round(asked.wall_clock * 1e9)
    identity = identity_of(asked.seed)
    authority = Member(asked.url, asked.run_id, identity)
    authority.die_after = asked.die_after
    try:
        state = await take_part(authority, identity.public)
        print(f"finished at step {state.progress.step}", flush=True)
    finally:
        await authority.close()


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
    asyncio.run(main())
