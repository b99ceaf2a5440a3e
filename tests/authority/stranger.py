"""A server process, and strangers who attack it over real connections."""

import asyncio
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import msgspec

from folkmoot.authority.server import wire
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity, Signer
from folkmoot.host.tasks import end_tasks
from support.commands import FOLKMOOT, RUN_FILE


class Served(NamedTuple):
    address: str
    pid: int

    def memory(self) -> int:
        """Its resident bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the server is gone")

    def seconds(self) -> float:
        """Its processor time."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(folder: Path, config: str = RUN_FILE) -> Iterator[Served]:
    """`folkmoot serve` in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.toml").write_text(config)
    read, write = os.pipe()
    command = [*FOLKMOOT, "serve", str(folder / "run.toml")]
    options = ["--listen", "127.0.0.1:0", "--state", str(folder / "server")]
    process = subprocess.Popen(
        [*command, *options, "--ready-fd", str(write)],
        pass_fds=[write],
        stdout=subprocess.DEVNULL,
    )
    os.close(write)
    try:
        with open(read) as ready:
            yield Served(ready.readline().strip(), process.pid)
    finally:
        process.terminate()
        process.wait(120)


async def call(channel: grpc.aio.Channel, method: str, request: Any) -> grpc.StatusCode:
    """How the server answers."""
    asked, answered = wire.METHODS[method]
    made = channel.unary_unary(
        f"/{wire.SERVICE}/{method}", asked.SerializeToString, answered.FromString
    )
    try:
        await made(request, timeout=60)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def flood(
    address: str, size: int, messages: int, at_once: int, connections: int = 1
) -> dict[grpc.StatusCode, int]:
    """Badly signed messages of `size` bytes, so many at a time on each connection."""
    told: dict[grpc.StatusCode, int] = {}
    left = iter(range(messages))

    async def send(channel: grpc.aio.Channel) -> None:
        for _ in left:
            request = wire.Signed(
                payload=secrets.token_bytes(size),
                public_key=secrets.token_bytes(32),
                signature=secrets.token_bytes(64),
                session=session,
                nonce=1,
            )
            code = await call(channel, "Submit", request)
            told[code] = told.get(code, 0) + 1

    channels = [
        grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        for _ in range(connections)
    ]
    hello = channels[0].unary_unary(
        f"/{wire.SERVICE}/Hello",
        wire.HelloRequest.SerializeToString,
        wire.HelloReply.FromString,
    )
    session = (await hello(wire.HelloRequest(run_id="moot"))).session
    try:
        await asyncio.gather(*(send(channel) for channel in channels for _ in range(at_once)))
    finally:
        for channel in channels:
            await channel.close()
    return told


async def replay(address: str, at_once: int, seconds: float) -> int:
    """Say one signed message again and again; how often it was answered."""
    identity, answered = Identity.random(), 0
    async with grpc.aio.insecure_channel(address) as channel:
        hello = channel.unary_unary(
            f"/{wire.SERVICE}/Hello",
            wire.HelloRequest.SerializeToString,
            wire.HelloReply.FromString,
        )
        session = (await hello(wire.HelloRequest(run_id="moot"))).session
        request = wire.Signed(payload=msgspec.msgpack.encode(m.HealthCheck(identity.public)))
        covered = partial(wire.signed_bytes, "Submit", "moot", request)
        Signer(identity).sign(request, session, covered)

        async def send() -> None:
            nonlocal answered
            while True:
                await call(channel, "Submit", request)
                answered += 1

        sending = [asyncio.create_task(send()) for _ in range(at_once)]
        await asyncio.wait(sending, timeout=seconds)
        await end_tasks(sending)
    return answered
