"""`folkmoot elastic run`: start, watch and restart the ranks of a job."""

from __future__ import annotations

import contextlib
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.group import add_group
from folkmoot.core.iteration.config import Rules, Takeover

DEFAULTS = Rules(world=1)


def register(app: typer.Typer) -> None:
    group = add_group(app, "elastic", "Training loops whose ranks may die, restart and come late.")
    # What follows the script is the script's.
    group.command(context_settings={"allow_interspersed_args": False})(run)


def run(
    script: Annotated[str, typer.Argument(help="The script that every rank runs.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="What the script is given.", show_default=False)
    ] = None,
    ranks: Annotated[int, typer.Option("--ranks", "-n", help="Ranks on this machine.", min=1)] = 1,
    module: Annotated[
        bool, typer.Option("--module", "-m", help="SCRIPT is a module, as in python -m.")
    ] = False,
    store: Annotated[
        str,
        typer.Option(help="tcp://host:port or etcd://host:port,…; one is started if not given."),
    ] = "",
    job: Annotated[
        str, typer.Option(help="The job's name in the store; the same on every node.")
    ] = "",
    nodes: Annotated[int, typer.Option(help="Machines, each with so many ranks.", min=1)] = 1,
    node_rank: Annotated[int, typer.Option(help="Which of them this is, from 0.", min=0)] = 0,
    max_restarts: Annotated[
        int, typer.Option(help="How often a rank is started again.", min=0)
    ] = 3,
    min_ranks: Annotated[
        int, typer.Option(help="Fewer than this do not go on.", min=1)
    ] = DEFAULTS.min_ranks,
    heartbeat_interval: Annotated[
        int, typer.Option(help="Milliseconds between heartbeats.", min=10)
    ] = DEFAULTS.heartbeat_interval,
    heartbeat_timeout: Annotated[
        int, typer.Option(help="A rank is silent after so many milliseconds.", min=15)
    ] = DEFAULTS.heartbeat_timeout,
    join_timeout: Annotated[
        int,
        typer.Option(help="For how many ms the first iteration waits for all ranks.", min=0),
    ] = DEFAULTS.join_timeout,
    straggler_timeout: Annotated[
        int,
        typer.Option(help="For how many ms one is waited for that is alive; 0: for ever.", min=0),
    ] = DEFAULTS.straggler_timeout,
    takeover: Annotated[
        Takeover, typer.Option(help="A second process of a rank replaces the first, or ends.")
    ] = DEFAULTS.takeover,
    log: Annotated[
        Path | None, typer.Option(help="A folder for event logs, one of each rank.")
    ] = None,
) -> None:
    """Run a script in several ranks; those that die start again.

    A script for torchrun runs unchanged: it finds RANK, WORLD_SIZE and the rest
    of torchrun's variables, and if a rank dies all of them start again. A script
    whose loop is `for iteration in GlobalIteration()` goes on without the dead
    rank, which joins again when it is back.

        folkmoot elastic run --ranks 4 train.py --lr 0.1

    On several machines, with a store that all of them reach, for node 0, 1, …:

        folkmoot store serve --host 0.0.0.0
        folkmoot elastic run --ranks 4 --nodes 2 --node-rank 0 \\
            --job NAME --store tcp://HOST:29400 train.py
    """
    from folkmoot.elastic.launch import Launcher, RankJob, python
    from folkmoot.elastic.settings import rules_from

    rules: dict[str, int | str] = {
        "min_ranks": min_ranks,
        "heartbeat_interval": heartbeat_interval,
        "heartbeat_timeout": heartbeat_timeout,
        "join_timeout": join_timeout,
        "straggler_timeout": straggler_timeout,
        "takeover": takeover.value,
    }
    _check(script, module, store, job, nodes, node_rank)
    with _store(store) as url:
        plan = RankJob(
            command=python(script, tuple(arguments or ()), module),
            store=url,
            name=job or f"job-{secrets.token_hex(4)}",
            ranks=ranks,
            nodes=nodes,
            node_rank=node_rank,
            max_restarts=max_restarts,
            rules=rules,
            log=log.resolve() if log else None,
        )
        rules_from(plan.world, plan.rules)  # what is wrong with them is said once, here
        code = Launcher(plan, _say).run()
    raise typer.Exit(code)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        typer.echo(f"folkmoot: {text}", err=True)


def _check(script: str, module: bool, store: str, job: str, nodes: int, node_rank: int) -> None:
    if not module and not Path(script).is_file():
        raise ValueError(f"there is no script {script}; with -m it is the name of a module")
    if node_rank >= nodes:
        raise ValueError(f"--node-rank {node_rank} is not one of 0 to {nodes - 1}")
    if nodes > 1 and not store:
        raise ValueError(
            "several nodes need a common store: `folkmoot store serve --host 0.0.0.0` on one of"
            " them, then --store tcp://HOST:29400 on all"
        )
    if nodes > 1 and not job:
        raise ValueError("several nodes need a common name: give each the same --job NAME")


@contextlib.contextmanager
def _store(url: str) -> Iterator[str]:
    """The store that was named, or one of our own that ends with us."""
    from folkmoot.cli.store import tell_if_absent
    from folkmoot.host.end_signals import ended_like_ctrl_c
    from folkmoot.host.processes import Processes

    if url:
        tell_if_absent(url)
        with ended_like_ctrl_c():
            yield url
        return
    serve = [sys.executable, "-m", "folkmoot", "store", "serve", "--port=0"]
    with tempfile.TemporaryDirectory() as folder, Processes(Path(folder)) as processes:
        yield processes.start_ready("store", serve)
