"""One line for each round that starts: the harness reads times from here, the same for every
system. `BENCH_ROUND_LOG` names the file, where nobody else does.
"""

import json
import os
import time


def log_round_start(round_: int, path: str = "") -> None:
    line = {"round": round_, "t": time.monotonic(), "pid": os.getpid()}
    with open(path or os.environ["BENCH_ROUND_LOG"], "a") as file:
        file.write(json.dumps(line) + "\n")
