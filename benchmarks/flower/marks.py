"""Append one line for each round that starts: the harness reads times from here, the same for
every system.
"""

import json
import os
import time


def mark(round_: int) -> None:
    line = {"round": round_, "t": time.monotonic(), "pid": os.getpid()}
    with open(os.environ["BENCH_MARKS"], "a") as file:
        file.write(json.dumps(line) + "\n")
