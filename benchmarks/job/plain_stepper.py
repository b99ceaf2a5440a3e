"""The same loop in workers that import nothing large."""

import os
import time
from pathlib import Path


def ours(folder: str) -> None:
    from folkmoot.unified.current import current_worker

    steps(folder, current_worker().rank)


def steps(folder: str, rank: int) -> None:
    with (Path(folder) / f"{rank}.steps").open("a", buffering=1) as file:
        while not (Path(folder) / "finish").exists():
            file.write(f"{time.time()} {os.getpid()}\n")
            time.sleep(0.02)
