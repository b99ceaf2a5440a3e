"""A run in a network namespace of its own whose lines are cut, or lose packets.

Run by test_cut_line.py under `unshare -rn`; ends with 0 when the run did, with one model.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from folkmoot.client import events
from folkmoot.core.coordinator import messages as m
from support.small_run import QUICK, SmallRun, agreement, small_run

FAR = "127.0.0.2"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def make_lossy() -> None:
    """What does not fit into a short queue is lost."""
    line = ["tbf", "rate", "2mbit", "burst", "8kb", "limit", "10kb"]
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", *line], check=True)


async def one_cut_off(run: SmallRun) -> None:
    """One client reaches the server and no peer, until it was missed by the others."""
    run.peers = replace(QUICK, bind=f"{FAR}:0", silence=3.0)
    (far,) = await run.join()
    await run.until(run.in_round(2))
    ip("route", "add", "blackhole", f"{FAR}/32", "table", "local")
    # Unhealthy, or gone by the word of the others: that depends on who was slow.
    await run.until(lambda: far.id in {who for who, _ in run.removed()})
    await run.until(lambda: any(e.what == "no model" for e in far.all(events.Peers)))
    ip("route", "del", "blackhole", f"{FAR}/32", "table", "local")
    await run.until(lambda: far.sources()[-1:] == ["peers"])


async def all_cut(run: SmallRun) -> None:
    """Nobody reaches anybody for longer than connections live."""
    await run.join()
    await run.until(run.in_round(2))
    ip("link", "set", "lo", "down")
    unreachable = {a.name for a in run.members}
    await run.until(
        lambda: unreachable <= {a.name for a in run.members if a.all(events.AuthorityUnreachable)}
    )
    ip("link", "set", "lo", "up")


async def lossy(run: SmallRun) -> None:
    make_lossy()
    await run.join()


FAULTS: dict[str, Callable[[SmallRun], Awaitable[None]]] = {
    "one cut off": one_cut_off,
    "all cut": all_cut,
    "lossy": lossy,
}


async def main(fault: str) -> None:
    ip("-6", "address", "flush", "dev", "lo")  # one way is easier to cut than two
    # On no machine, however slow, is it over before the line is back.
    config = {"total_steps": 10**6, "rounds_per_epoch": 8, "init_min_clients": 3}
    quick = {"max_round_train_time": 3.0, "health_check_timeout": 8.0, "warmup_time": 60.0}
    peers = replace(QUICK, silence=3.0)
    with tempfile.TemporaryDirectory() as folder:
        async with small_run(Path(folder), peers, **config, **quick) as run:
            await run.join(2)
            await FAULTS[fault](run)
            await run.end_after(20)
            assert agreement(run.members)
            print(run.removed(), len(run.all(m.EpochStarted)), "epochs")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
