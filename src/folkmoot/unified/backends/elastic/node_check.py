"""One worker's part in a check: multiply matrices, then sum a vector over the group with gloo.

The group is one of its own, beside torch's default group, which belongs to the user.
"""

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

# Of the matrices, and how often they are multiplied; numbers in the vector, and how often it is
# summed: some ten milliseconds on a core.
SIDE, PRODUCTS = 384, 8
LENGTH, SUMS = 500_000, 4


def check(host: str, port: int, key: str, index: int, size: int, seconds: float) -> float:
    """The seconds it took; an error says that this worker or one of its group cannot do it."""
    limit = timedelta(seconds=seconds)
    store = dist.TCPStore(host, port, is_master=False, timeout=limit)  # type: ignore[attr-defined]
    ours = dist.PrefixStore(key, store)  # type: ignore[attr-defined]
    group = dist.ProcessGroupGloo(ours, index, size, timeout=limit)
    _sum(group, torch.zeros(1), size)  # all are here: nobody's time is another's start
    before, threads = time.monotonic(), torch.get_num_threads()
    # Workers that share a machine are checked at once: one core each, so that they are compared.
    torch.set_num_threads(1)
    try:
        _multiply()
        for _ in range(SUMS):
            _sum(group, torch.ones(LENGTH), size)
    finally:
        torch.set_num_threads(threads)
    return time.monotonic() - before


def _multiply() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matrix = torch.full((SIDE, SIDE), 1.0 / SIDE, device=device)
    product = matrix
    for _ in range(PRODUCTS):
        product = product @ matrix
    wrong = (product - matrix).abs().max().item()
    if not wrong < 1e-3:
        raise ArithmeticError(f"{device} multiplies matrices wrongly, by {wrong:g}")


def _sum(group: Any, vector: torch.Tensor, size: int) -> None:
    expected = vector * size
    group.allreduce([vector]).wait()
    if not torch.equal(vector, expected):
        raise ArithmeticError("an all-reduce gave a wrong sum")
