"""`folkmoot federate simulate`: thousands of virtual participants on this machine."""

import os
from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.interrupt import run_until_interrupted

Config = Annotated[Path, typer.Argument(help="The federation's configuration, federation.toml.")]
Class = Annotated[
    str, typer.Option("--participant", "-p", help="module:Class of the participant to run.")
]


def simulate(
    file: Config,
    participant: Class,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many.")] = 1000,
    rounds: Annotated[int, typer.Option(min=0, help="Rounds; 0 takes the file's.")] = 0,
    processes: Annotated[
        int, typer.Option("--processes", "-j", min=0, help="Size of the pool; 0: one a core.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Where chance begins.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="Where everything goes.")] = Path(
        "out/simulation"
    ),
) -> None:
    """Try a federation out with COUNT virtual participants, in a bounded pool of processes.

    The coordinator, its requests and its updates are real. The same seed gives the same keys and
    selections, and the same model if participants draw from nothing but their number.
    """
    from folkmoot.cli.federate import load_participant
    from folkmoot.cli.progress import progress_bar
    from folkmoot.federated.coordinator.config import BESIDE_JOURNAL, load_federation
    from folkmoot.federated.simulation import simulation

    load_participant(participant)
    config = simulation.prepared(load_federation(file, BESIDE_JOURNAL), out, rounds, seed)
    total = config.rounds.rounds * config.rounds.goal(count)
    pool = processes or os.cpu_count() or 1
    done: list[simulation.Simulated] = []

    async def run() -> None:
        with progress_bar(f"{count} participants, {pool} processes", total) as tell:
            done.append(await simulation.simulate(config, participant, count, pool, tell))

    if not run_until_interrupted(run()):
        raise typer.Exit(130)
    (result,) = done
    typer.echo(
        f"{result.rounds} rounds, {result.updates} updates in {result.seconds:.1f} s; "
        f"the model is {result.model}"
    )
    _plot(out / "events.jsonl", out / "rounds.png", config.run_id)


def _plot(log: Path, image: Path, title: str) -> None:
    from folkmoot.observe.federation_plot import plot_rounds

    try:
        if names := plot_rounds(log, image, title):
            typer.echo(f"{', '.join(names)} by round: {image}")
    except ImportError:
        typer.echo("no plot: pip install matplotlib")
