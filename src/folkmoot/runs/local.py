"""A whole run in this process: for notebooks, scripts and tests of an idea.

`folkmoot up` does the same with a process for each member, which can then be killed.
"""

import asyncio
import os
import tempfile
from contextlib import ExitStack
from pathlib import Path

from folkmoot.client.places import ALL
from folkmoot.core.coordinator import Run
from folkmoot.runs.join import join_run
from folkmoot.runs.serve import serve_run
from folkmoot.runs.trained_model import TrainedModel, load_checkpoint


async def train_together(
    run: Run, clients: int = 2, folder: str | os.PathLike[str] | None = None
) -> TrainedModel:
    """Serve `run` and join it with `clients` members until it is finished; the model they made.

    Everything goes into `folder`, laid out as by `folkmoot up`: served again from there, the run
    goes on. With none, nothing is left but the model.
    """
    needed = run.config.clients_to_begin
    if clients < needed:
        raise ValueError(f"the run begins with {needed} clients, not {clients}: see min_clients")
    with ExitStack() as stack:
        home = Path(folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="folkmoot-")))
        async with serve_run(run, home / "server") as server, asyncio.TaskGroup() as group:
            members = [
                group.create_task(
                    join_run(server.address, run.run_id, home / f"client-{number}", trust=(ALL,))
                )
                for number in range(1, clients + 1)
            ]
        found = [model for member in members if (model := member.result()) is not None]
        if found:
            return found[0]
        stored = server.state.checkpoint.location
        if not stored:
            raise RuntimeError(f"run '{run.run_id}' was finished before, and stored no checkpoint")
        return load_checkpoint(stored)
