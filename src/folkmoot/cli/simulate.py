"""`folkmoot simulate`: play seeded worlds of faults around a core machine."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from folkmoot.simulate.report import WorldReport

SHOWN = 10  # failing seeds named, before the rest is only counted


def simulate(
    seeds: int = typer.Option(1000, min=1, help="How many worlds to play."),
    start: int = typer.Option(0, min=0, help="The first seed."),
    jobs: int = typer.Option(2, min=1, help="Worlds at a time."),
    world: str = typer.Option("run", help="Which machine the worlds are around."),
    mutants: bool = typer.Option(False, help="Break the machine on purpose, and catch it."),
) -> None:
    """Play seeded worlds with faults and liars, and check what must hold after every event.

    For a failing seed it prints the violated invariant and a transcript that reproduces it in a
    test: `assert folkmoot.simulate.replay(transcript) is None`.
    """
    from rich.console import Console

    from folkmoot.simulate.worlds import WORLDS

    console = Console(highlight=False, soft_wrap=True)
    if world not in WORLDS:
        names = ", ".join(sorted(WORLDS))
        raise typer.BadParameter(f"there is no world {world!r}; there are: {names}")
    try:
        if mutants:
            ok = _mutants(console, world, range(start, start + seeds))
        else:
            ok = _play(console, world, start, seeds, jobs)
    except KeyboardInterrupt:
        console.print("interrupted")
        raise typer.Exit(130) from None
    raise typer.Exit(0 if ok else 1)


def _play(console: Console, world: str, start: int, seeds: int, jobs: int) -> bool:
    from contextlib import closing

    from folkmoot.cli.progress import progress_bar
    from folkmoot.simulate.parallel import play_many

    began = time.monotonic()
    counts: Counter[str] = Counter()
    failed: list[WorldReport] = []
    worlds = events = 0
    with (
        closing(play_many(world, start, start + seeds, jobs)) as chunks,
        progress_bar("worlds", seeds) as show,
    ):
        for chunk in chunks:
            worlds += chunk.worlds
            events += chunk.events
            counts.update(chunk.counts)
            failed += chunk.failed
            show(worlds)
    took = time.monotonic() - began
    told = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    console.print(
        f"{worlds:,} worlds in {took:.1f} s ({worlds / took * 60:,.0f} a minute), "
        f"{events:,} events, {told}"
    )
    _tell(console, world, sorted(failed, key=lambda report: report.seed))
    return not failed


def _tell(console: Console, world: str, failed: list[WorldReport]) -> None:
    from folkmoot.simulate.worlds import shorten

    if not failed:
        console.print("[green]every invariant held[/green]")
        return
    for report in failed[:SHOWN]:
        console.print(f"seed {report.seed}: {report.violation}", style="red", markup=False)
    if len(failed) > SHOWN:
        console.print(f"and {len(failed) - SHOWN} more")
    first = failed[0]
    console.print(
        f"\nto play it again: folkmoot simulate --world {world} --start {first.seed} --seeds 1"
    )
    console.print("to reproduce it in a test, replay this transcript:\n")
    console.print(shorten(first.transcript), markup=False)


def _mutants(console: Console, world: str, seeds: range) -> bool:
    from functools import partial

    from folkmoot.simulate.mutants import seeds_to_catch
    from folkmoot.simulate.worlds import WORLDS, play

    survived = []
    mutants = WORLDS[world].mutants
    for name, mutant in mutants.items():
        caught = seeds_to_catch(mutant, partial(play, world), seeds)
        if caught is None:
            survived.append(name)
            console.print(f"[red]{name}: survived {len(seeds)} seeds[/red]")
        else:
            count, violation = caught
            invariant = violation.partition(":")[0]
            console.print(f"{name}: caught after {count} seed{'s' * (count > 1)} by {invariant}")
    console.print(f"{len(mutants) - len(survived)} of {len(mutants)} mutants caught")
    return not survived
