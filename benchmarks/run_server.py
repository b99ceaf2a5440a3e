"""A server with thousands of joined light clients: how fast a change reaches them all.

    python benchmarks/run_server.py [--clients 2000] [--connections 2000]

Every light client watches over its own connection (or, with fewer connections than clients, as one
of several streams on one) and joins with its own key and an address as long as real ones. They live
in this one process. Measured are: `begin`, where one more joins and the first epoch begins; a turn,
where the owner pauses or resumes, and an epoch ends or begins; a witness, one proof of a round; and
at the end all other witnesses of the round at once. A time runs from before the message is
submitted, so it includes the journal, until a client has the last change that follows from it.
Goals: p99 over changes and clients <= 0.5 s, and the server's memory <= 400 MB.
"""

import argparse
import asyncio
import gc
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
import msgspec

import results
from folkmoot.authority.server import wire
from folkmoot.authority.server.serve import Listening, listen
from folkmoot.authority.server.service import Access
from folkmoot.core.bloom import bloom_bits
from folkmoot.core.coordinator import Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.host.memory import collect_seldom, share_heap
from folkmoot.host.signing import Identity

CHANGES = 20
ADDRESS = bytes(60)  # two direct addresses, or one and a relay
GOAL_SECONDS, GOAL_MEGABYTES = 0.5, 400


def serve(clients: int, pipe: Connection) -> None:
    """The server process: says its port, makes changes when told to, reports what they cost."""

    async def main() -> None:
        config = CoordinatorConfig(
            total_steps=1000,
            min_clients=1,
            init_min_clients=clients + 1,
            max_clients=clients + 1,
            global_batch_size_start=clients,
            health_check_timeout=3000,
            warmup_time=1000,
            epoch_time=3_000_000,
            max_round_train_time=100_000,
            round_witness_time=10_000,
        )
        run = Run(run_id="bench", config=config, model=Model())
        with tempfile.TemporaryDirectory() as folder:
            address = "127.0.0.1:0"
            async with listen(run, Path(folder) / "j", address, Access()) as server:
                pipe.send(server.port)
                await obey(server, pipe)

    share_heap()
    collect_seldom()
    asyncio.run(main())


async def obey(server: Listening, pipe: Connection) -> None:
    """Carry out orders: answers with the time before each, and the processor time used so far."""
    while (order := await asyncio.to_thread(pipe.recv)) != "stop":
        messages = orders(server, order)
        pipe.send((time.monotonic(), time.process_time()))
        refused = await asyncio.gather(*(server.keeper.submit(message) for message in messages))
        assert not any(refused), refused
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pipe.send((memory, time.process_time()))


def orders(server: Listening, order: str) -> list[m.AnyEvent]:
    state = server.keeper.state
    if order == "turn":
        return [m.Resume() if state.pause_wanted else m.Pause()]
    if order == "begin":
        return [m.Join(bytes(32), "bench", b"", ADDRESS)]
    if order == "ready":
        return [m.Ready(client.id, state.epoch_number) for client in state.epoch.clients]
    if order == "nothing":
        return []
    waiting = witnesses(server)
    return waiting[:1] if order == "witness" else waiting


def witnesses(server: Listening) -> list[m.AnyEvent]:
    """What the round's witnesses that were not heard have to say."""
    state = server.keeper.state
    heard = {witness.proof.index for witness in state.round.witnesses}
    committee = state.committee(state.round)
    empty, digest = bytes(bloom_bits(len(state.epoch.clients)) // 8), bytes(32)
    return [
        m.OpportunisticWitness(
            state.epoch.clients[state.place(state.round, index)].id,
            state.epoch_number,
            state.round.height,
            committee.get_witness(index),
            empty,
            empty,
            digest,
            digest,
        )
        for index in committee.witness_indices()
        if index not in heard
    ]


class Watchers:
    """Light clients of one process, each with its own key and stream."""

    def __init__(self, port: int, clients: int, connections: int) -> None:
        apart = [("grpc.use_local_subchannel_pool", 1)]
        self.channels = [
            grpc.aio.insecure_channel(f"127.0.0.1:{port}", apart) for _ in range(connections)
        ]
        self.identities = [Identity.random() for _ in range(clients)]
        self.versions = [-1] * clients
        self.arrived = [0.0] * clients
        self.moved = asyncio.Event()
        self.received = 0

    async def hello(self) -> None:
        call = self.channels[0].unary_unary(f"/{wire.SERVICE}/Hello")
        reply = await call(wire.HelloRequest(run_id="bench").SerializeToString())
        self.session = wire.HelloReply.FromString(reply).session

    def signed(self, method: str, number: int, nonce: int, payload: bytes) -> bytes:
        identity = self.identities[number]
        request = wire.Signed(
            public_key=identity.public, session=self.session, nonce=nonce, payload=payload
        )
        request.signature = identity.sign(wire.signed_bytes(method, "bench", request))
        return bytes(request.SerializeToString())

    async def join(self, number: int) -> None:
        call = self.channels[number % len(self.channels)].unary_unary(f"/{wire.SERVICE}/Submit")
        join = msgspec.msgpack.encode(m.Join(self.identities[number].public, "bench", b"", ADDRESS))
        await call(self.signed("Submit", number, 1, join))

    async def watch(self, number: int) -> None:
        call = self.channels[number % len(self.channels)].unary_stream(f"/{wire.SERVICE}/Watch")
        async for change in call(self.signed("Watch", number, 2, b"")):
            self.versions[number] = wire.Change.FromString(change).version
            self.arrived[number] = time.monotonic()
            self.received += len(change)
            self.moved.set()

    async def settled(self) -> float:
        """Wait until all have the newest version and nothing moves; when the last one got it."""
        while True:
            self.moved.clear()
            apart = min(self.versions) < 0 or min(self.versions) != max(self.versions)
            try:
                await asyncio.wait_for(self.moved.wait(), 60 if apart else 0.5)
            except TimeoutError:
                if apart:
                    raise
                return max(self.arrived)


class Cost:
    """What a kind of change cost."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seconds: list[float] = []
        """Until the last client has it, per change."""
        self.deliveries: list[float] = []
        """Until a client has it, per change and client."""
        self.processor = 0.0
        self.clients_processor = 0.0
        self.bytes = 0

    def worst(self) -> float:
        return p99(self.deliveries)

    def line(self) -> str:
        count, times = len(self.seconds), sorted(self.seconds)
        return (
            f"{self.name}: to a client p99 {self.worst():.3f} s; to the last of all median"
            f" {times[count // 2]:.3f} s, worst {times[-1]:.3f} s; server"
            f" {self.processor / count:.3f} and clients {self.clients_processor / count:.3f}"
            f" processor seconds, {self.bytes / count / 1e6:.1f} MB a time ({count} times)"
        )


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


async def measure(clients: int, connections: int, port: int, pipe: Connection) -> list[Cost]:
    watchers = Watchers(port, clients, connections)
    await watchers.hello()
    began = time.monotonic()
    tasks = asyncio.gather(*(watchers.watch(number) for number in range(clients)))
    print(f"all watch after {await watchers.settled() - began:.1f} s", flush=True)
    began = time.monotonic()
    gate = asyncio.Semaphore(64)

    async def join(number: int) -> None:
        async with gate:
            await watchers.join(number)

    await asyncio.gather(*(join(number) for number in range(clients)))
    joined = time.monotonic() - began
    print(f"{clients:,} clients joined in {joined:.1f} s ({clients / joined:,.0f} a second)")
    await watchers.settled()
    costs = []
    plan = [
        ("begin", 1),
        ("turn", CHANGES),
        ("ready", 1),
        ("witness", CHANGES),
        ("all witnesses", 1),
    ]
    for order, times in plan:
        cost = Cost(order)
        for _ in range(times):
            await once(watchers, pipe, order, cost)
        costs.append(cost)
    tasks.cancel()
    await asyncio.gather(tasks, return_exceptions=True)
    await asyncio.gather(*(channel.close() for channel in watchers.channels))
    return costs


async def once(watchers: Watchers, pipe: Connection, order: str, cost: Cost) -> None:
    before, ours = watchers.received, time.process_time()
    pipe.send(order)
    began, used = await asyncio.to_thread(pipe.recv)
    cost.seconds.append(await watchers.settled() - began)
    cost.deliveries += [arrived - began for arrived in watchers.arrived]
    pipe.send("nothing")
    _, after = await asyncio.to_thread(pipe.recv)
    cost.processor += after - used
    cost.clients_processor += time.process_time() - ours
    cost.bytes += watchers.received - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=2000)
    parser.add_argument("--connections", type=int, help="as many as clients by default")
    asked = parser.parse_args()
    clients, connections = asked.clients, asked.connections or asked.clients
    gc.disable()  # we are the instrument: our own pauses are not the server's
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(clients, theirs), daemon=True)
    server.start()
    costs = asyncio.run(measure(clients, connections, ours.recv(), ours))
    ours.send("stop")
    memory, _ = ours.recv()
    server.join(10)
    for cost in costs:
        print(cost.line())
    worst = max(cost.worst() for cost in costs)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    fast, small = worst <= GOAL_SECONDS, memory <= GOAL_MEGABYTES
    print(f"p99 {worst:.3f} s: goal {GOAL_SECONDS} s {results.GOALS[fast]}")
    print(f"memory {memory:.0f} MB: goal {GOAL_MEGABYTES} MB {results.GOALS[small]}")
    if asked == parser.parse_args([]):
        epoch = max(cost.worst() for cost in costs if cost.name in ("begin", "turn"))
        figures = {
            "clients": clients,
            "epoch_p99_seconds": results.significant(epoch, 2),
            "worst_p99_seconds": results.significant(worst, 2),
            "memory_mb": round(memory),
        }
        results.write("run_server", "make bench-run", figures)
    sys.exit(not (fast and small))


if __name__ == "__main__":
    main()
