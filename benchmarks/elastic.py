"""Ranks that agree through a store, beside their peers, in one run: `make bench-elastic`.

advance    W ranks agree on the next iteration, beside a bare barrier on the same store, once with
           torch's client, and once with ours, which is Python
recovery   from the `kill -9` of one of four ranks to the survivors' next step, beside torchrun
           and torchft

Systems take turns, so that all of them meet the same disturbances. A figure is the median over
`--repeats` rounds of measuring, or over `--kills` kills; how many times as long as the barrier an
advance takes is the median over pairs of rounds, one right after the other.

Goals: an advance takes at most twice as long as the barrier, at every size, and grows no faster;
a rank asks the store equally often at every size; survivors go on within two heartbeats of the
kill, and before torchrun and torchft.
"""

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

import elastic_advance as advance
import elastic_recovery as recovery
import results
from elastic_ours import OurBarrier, our_rank

ADVANCES = {4: 150, 8: 150, 32: 60, 128: 30}
"""World sizes, and how often each of them advances in a round of measuring."""
HEARTBEAT, TIMEOUT = 1.0, 1.5
"""Seconds between two heartbeats, and without one until a rank counts as dead: for all systems."""
PATIENCE = 120.0
"""The same where nobody dies: a rank that a busy machine starves must not be left out there."""
WAYS: dict[str, advance.Joining] = {
    "barrier": advance.BareBarrier,
    "Folkmoot": our_rank(HEARTBEAT, PATIENCE),
    "barrier, our client": OurBarrier,
}
COUNTED = our_rank(HEARTBEAT, PATIENCE, counting=True)
"""Folkmoot in a round of its own, in which its requests are counted."""
BEATS = f"{HEARTBEAT:g} s, dead after {TIMEOUT:g} s"
SYSTEMS = (
    recovery.System("Folkmoot", BEATS, recovery.folkmoot(HEARTBEAT, TIMEOUT)),
    recovery.System(
        "Folkmoot, the winner",
        BEATS,
        recovery.folkmoot(HEARTBEAT, TIMEOUT, winner=True),
        kills_itself=True,
    ),
    recovery.System(
        "Folkmoot, launcher",
        f"{BEATS}, or when the launcher sees it",
        recovery.folkmoot_launcher(HEARTBEAT, TIMEOUT),
    ),
    recovery.System("torchrun", "when the launcher sees it", recovery.torchrun, restarts=True),
    recovery.System("torchft", BEATS, recovery.torchft(HEARTBEAT, TIMEOUT, join=60.0)),
    recovery.System(
        "torchft, impatient",
        f"{BEATS}; who lives and is 0.1 s late is left out",
        recovery.torchft(HEARTBEAT, TIMEOUT, join=0.1),
    ),
    recovery.System(
        "torchft, defaults", "0.1 s, dead after 5 s", recovery.torchft(0.1, 5.0, join=60.0)
    ),
)

BY_HEARTBEAT = ("Folkmoot", "Folkmoot, the winner")
"""Nobody tells the survivors: the goal is for these."""
COMPARED = ("torchrun", "torchft")
"""With the same heartbeats, and like Folkmoot without leaving out anybody who lives."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", nargs="*", type=int, default=list(ADVANCES), choices=ADVANCES)
    parser.add_argument("--repeats", type=int, default=5, help="rounds of measuring an advance")
    parser.add_argument("--kills", type=int, default=7, help="of each system; 0 leaves them out")
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--systems", nargs="+", default=names, choices=names, metavar="NAME")
    asked = parser.parse_args()
    advances = measure_advances(asked.worlds, asked.repeats) if asked.worlds else {}
    kills = measure_recovery(asked.systems, asked.kills) if asked.kills else {}
    for goal, met in goals(advances, kills):
        print(f"{goal}: {results.GOALS[met]}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if asked == parser.parse_args([]):
        figures = {"advance": advances, "recovery": kills}
        results.write("elastic", "make bench-elastic", figures)


def goals(advances: dict[str, Any], kills: dict[str, Any]) -> list[tuple[str, bool]]:
    """What was set out to be reached, as far as it was measured."""
    said = []
    if advances:
        times = [row["times the barrier"] for row in advances.values()]
        said.append((f"an advance at most {max(times)} times the barrier; goal 2", max(times) <= 2))
        text = f"{times[0]} times in the smallest world, {times[-1]} in the largest; goal: no more"
        # Two runs of the same differ by a tenth.
        said.append((text, times[-1] <= times[0] + 0.1))
        asked = [row["requests of a rank"] for row in advances.values()]
        text = f"{min(asked)} to {max(asked)} requests of a rank; goal: no more in larger worlds"
        # Ranks take turns at the last place, which asks more often: a share of one request.
        said.append((text, max(asked) < asked[0] + 0.5))
    medians = {name: row["median, s"] for name, row in kills.items() if row["median, s"] != "-"}
    ours = max((medians[name] for name in BY_HEARTBEAT if name in medians), default=0)
    theirs = min((medians[name] for name in COMPARED if name in medians), default=0)
    if ours:
        said.append(
            (f"survivors go on after {ours} s; goal {2 * HEARTBEAT:g} s", ours <= 2 * HEARTBEAT)
        )
    if ours and theirs:
        said.append((f"torchrun and torchft after {theirs} s at best; goal: later", ours < theirs))
    return said


def measure_advances(worlds: list[int], repeats: int) -> dict[str, dict[str, Any]]:
    """For each world: median and p90 in ms of each way, and how often a rank asks the store."""
    table = {}
    with advance.store_server() as port:
        for world in worlds:
            rounds: dict[str, list[advance.Advances]] = {way: [] for way in WAYS}
            for repeat in range(repeats):
                for way, joining in WAYS.items():
                    run = f"{way}-{world}-{repeat}"
                    got = advance.measure(joining, port, run, world, ADVANCES[world])
                    rounds[way].append(got)
            counted = advance.measure(COUNTED, port, f"counted-{world}", world, ADVANCES[world])
            table[f"{world} ranks"] = row = advance_row(rounds, counted)
            print(f"advance   {world:>3} ranks  {shown(row)}", flush=True)
    return table


def advance_row(
    rounds: dict[str, list[advance.Advances]], counted: advance.Advances
) -> dict[str, Any]:
    barrier, ours, through_ours = (typical(got) for got in rounds.values())
    turns = zip(*rounds.values(), strict=True)
    times = statistics.median(ours.median / barrier.median for barrier, ours, _ in turns)
    return {
        "barrier, ms": milliseconds(barrier.median),
        "barrier, p90": milliseconds(barrier.p90),
        "Folkmoot, ms": milliseconds(ours.median),
        "Folkmoot, p90": milliseconds(ours.p90),
        "times the barrier": results.significant(times, 2),
        "barrier, our client": milliseconds(through_ours.median),
        "processor of a rank, ms": milliseconds(ours.processor),
        "at the barrier": milliseconds(barrier.processor),
        "requests of a rank": results.significant(counted.requests, 2),
        "for heartbeats, a second": results.significant(counted.heartbeats, 2),
    }


def typical(rounds: list[advance.Advances]) -> advance.Advances:
    """The middle one of several rounds of measuring."""
    return sorted(rounds, key=lambda got: got.median)[len(rounds) // 2]


def measure_recovery(names: list[str], kills: int) -> dict[str, dict[str, Any]]:
    """For each system: seconds from a kill to the last survivor's next step."""
    home = Path("out/elastic").resolve()
    systems = [system for system in SYSTEMS if system.name in names]
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(kills):
        for system in systems:
            try:
                took = recovery.measure(system, home, number)
                seconds[system.name].append(took)
                print(f"recovery  {system.name}, kill {number + 1}: {took:.2f} s", flush=True)
            except recovery.NotRecovered as why:
                print(f"recovery  {system.name}: {why}", flush=True)
    table = {}
    for system in systems:
        got = seconds[system.name]
        table[system.name] = row = {
            "heartbeats": system.settings,
            "median, s": results.significant(statistics.median(got)) if got else "-",
            "slowest, s": results.significant(max(got)) if got else "-",
            "went on": f"{len(got)} of {kills}",
        }
        print(f"recovery  {system.name:<22} {shown(row)}", flush=True)
    return table


def milliseconds(seconds: float) -> float:
    return results.significant(1000 * seconds)


def shown(row: dict[str, Any]) -> str:
    return "   ".join(f"{name} {value}" for name, value in row.items())


if __name__ == "__main__":
    main()
