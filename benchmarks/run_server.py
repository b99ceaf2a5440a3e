"""A server with thousands of joined light clients: how fast a change reaches them all.

    python benchmarks/run_server.py [--clients 2000]

Every light client joins with its own key and watches; they share a few connections. A change is
an epoch that starts, a round, a pause. Goals: p99 from the change to all clients <= 0.5 s, and the
server's memory <= 400 MB.
"""

import argparse
import asyncio
import multiprocessing
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import msgspec

from folkmoot.authority.server import wire
from folkmoot.authority.server.serve import listen
from folkmoot.authority.server.service import Access
from folkmoot.authority.signing import Identity
from folkmoot.core.coordinator import Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model

CHANNELS = 20
CHANGES = 20
GOAL_SECONDS, GOAL_MEGABYTES = 0.5, 400


def serve(clients: int, pipe: Connection) -> None:
    """The server process: says its port, makes changes when told to, reports its memory."""

    async def main() -> None:
        owner = Identity(b"o" * 32)
        config = CoordinatorConfig(
            total_steps=1000,
            min_clients=1,
            init_min_clients=clients,
            max_clients=clients,
            global_batch_size_start=clients,
            health_check_timeout=3000,
            warmup_time=1000,
            epoch_time=3_000_000,
            max_round_train_time=100_000,
        )
        run = Run(run_id="bench", config=config, model=Model())
        loop = asyncio.get_running_loop()
        with tempfile.TemporaryDirectory() as folder:
            access = Access(owners=frozenset({owner.public}))
            async with listen(run, Path(folder) / "j", "127.0.0.1:0", access) as server:
                pipe.send(server.port)
                while True:
                    order = await loop.run_in_executor(None, pipe.recv)
                    if order == "memory":
                        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                        pipe.send((used, server.service.watchers))
                        return
                    pipe.send(time.monotonic())
                    wanted = m.Resume() if server.keeper.state.pause_wanted else m.Pause()
                    await server.keeper.submit(wanted)

    asyncio.run(main())


class Watchers:
    """Light clients of one process."""

    def __init__(self, port: int, clients: int) -> None:
        self.channels = [grpc.aio.insecure_channel(f"127.0.0.1:{port}") for _ in range(CHANNELS)]
        self.identities = [Identity.random() for _ in range(clients)]
        self.versions = [-1] * clients
        self.arrived = [0.0] * clients
        self.moved = asyncio.Event()
        self.nonce = 0

    async def hello(self) -> None:
        call = self.channels[0].unary_unary(f"/{wire.SERVICE}/Hello")
        reply = await call(wire.HelloRequest(run_id="bench").SerializeToString())
        self.session = wire.HelloReply.FromString(reply).session

    def signed(self, method: str, number: int, payload: bytes) -> bytes:
        self.nonce += 1
        identity = self.identities[number]
        request = wire.Signed(
            public_key=identity.public, session=self.session, nonce=self.nonce, payload=payload
        )
        request.signature = identity.sign(wire.signed_bytes(method, "bench", request))
        return bytes(request.SerializeToString())

    async def join(self, number: int) -> None:
        call = self.channels[number % CHANNELS].unary_unary(f"/{wire.SERVICE}/Submit")
        join = msgspec.msgpack.encode(m.Join(self.identities[number].public, "bench"))
        await call(self.signed("Submit", number, join))

    async def watch(self, number: int) -> None:
        call = self.channels[number % CHANNELS].unary_stream(f"/{wire.SERVICE}/Watch")
        async for change in call(self.signed("Watch", number, b"")):
            self.versions[number] = wire.Change.FromString(change).version
            self.arrived[number] = time.monotonic()
            self.moved.set()

    async def all_at(self, version: int) -> float:
        """When the last client saw `version`."""
        async with asyncio.timeout(60):
            while min(self.versions) < version:
                self.moved.clear()
                await self.moved.wait()
        return max(self.arrived)


async def measure(clients: int, port: int, pipe: Connection) -> list[float]:
    watchers = Watchers(port, clients)
    await watchers.hello()
    began = time.monotonic()
    gate = asyncio.Semaphore(64)

    async def join(number: int) -> None:
        async with gate:
            await watchers.join(number)

    await asyncio.gather(*(join(number) for number in range(clients)))
    joined = time.monotonic() - began
    print(f"{clients:,} clients joined in {joined:.1f} s ({clients / joined:,.0f} a second)")
    tasks = [asyncio.create_task(watchers.watch(number)) for number in range(clients)]
    version = await settled(watchers)
    times = []
    for _ in range(CHANGES):
        pipe.send("change")
        began = await asyncio.to_thread(pipe.recv)
        version += 1
        times.append(await watchers.all_at(version) - began)
        version = await settled(watchers)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in watchers.channels:
        await channel.close()
    return sorted(times)


async def settled(watchers: Watchers) -> int:
    """Wait until everybody has seen the newest version, and nothing moves any more."""
    while True:
        newest = max(watchers.versions)
        if newest >= 0 and min(watchers.versions) == newest:
            try:
                watchers.moved.clear()
                await asyncio.wait_for(watchers.moved.wait(), 0.5)
            except TimeoutError:
                return newest
        else:
            watchers.moved.clear()
            await watchers.moved.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=2000)
    clients = parser.parse_args().clients
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(clients, theirs), daemon=True)
    server.start()
    times = asyncio.run(measure(clients, ours.recv(), ours))
    ours.send("memory")
    memory, _ = ours.recv()
    server.join(10)
    worst = times[-1] if len(times) < 100 else times[int(len(times) * 0.99)]
    print(f"change to all {clients:,}: median {times[len(times) // 2]:.3f} s, worst {worst:.3f} s")
    print(f"  goal {GOAL_SECONDS} s: {'met' if worst <= GOAL_SECONDS else 'MISSED'}")
    print(f"server memory {memory:.0f} MB, goal {GOAL_MEGABYTES} MB")
    sys.exit(worst > GOAL_SECONDS or memory > GOAL_MEGABYTES)


if __name__ == "__main__":
    main()
