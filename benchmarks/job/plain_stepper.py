"""The same loop in workers that import nothing large."""

import os
import time
from pathlib import Path


def ours(folder: str) -> None:
    from folkmoot.unified.current import current_worker

    with (Path(folder) / f"{current_worker().rank}.steps").open("a", buffering=1) as file:
        while not (Path(folder) / "finish").exists():
            file.write(f"{time.time()} {os.getpid()}\n")
            time.sleep(0.02)
