"""The program at length, on all cores: sequences beside the core, or damaged instructions.

    python tests/authority/solana/at_length.py sequences 1000000 20000
    python tests/authority/solana/at_length.py sequences 2000000 2000 --compiler clang-19
    python tests/authority/solana/at_length.py inputs 0 1000000

The numbers are the first and how many; each follows from its number alone, so that other numbers
are others, and what was broken off goes on where its last line says. It ends with the first
difference or broken promise, or with figures.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

from solders.account import Account

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from authority.solana.differential import play, whole_template
from authority.solana.fuzzing import AT_A_SCENE, Fuzzer
from authority.solana.vm import Vm
from folkmoot.authority.solana.build import build, clang


def sequences(program: bytes | None, numbers: range) -> Counter[str]:
    """Play them; raises `Differs`."""
    vm, template = _machine(program)
    counted: Counter[str] = Counter()
    for number in numbers:
        pair = play(number, vm, template)
        counted += Counter({"messages": pair.events, "refused": pair.refusals})
    return counted


def inputs(program: bytes | None, numbers: range) -> Counter[str]:
    """Send them; raises `Broken`."""
    fuzzer = _fuzzer(program)
    fuzzer.counted.clear()
    for scene in range(numbers.start // AT_A_SCENE, numbers.stop // AT_A_SCENE):
        fuzzer.play(scene)
    return fuzzer.counted.copy()


KINDS = {"sequences": (sequences, 50), "inputs": (inputs, 10_000)}  # and how many at once


@cache  # a process plays many parts
def _machine(program: bytes | None) -> tuple[Vm, Account]:
    vm = Vm(program)
    return vm, whole_template(vm)


@cache
def _fuzzer(program: bytes | None) -> Fuzzer:
    return Fuzzer(program)


def at_length(
    kind: str, numbers: range, program: bytes | None = None
) -> Iterator[tuple[int, Counter[str]]]:
    """How far it is and what was counted until then, again and again."""
    play_part, size = KINDS[kind]
    parts = [numbers[at : at + size] for at in range(0, len(numbers), size)]
    counted: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        try:
            played = pool.map(partial(play_part, program), parts)
            for part, found in zip(parts, played, strict=True):
                counted += found
                yield part.stop, counted
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--compiler", help="a clang; else the program is the shipped one")
    asked = parser.parse_args()
    program = build(clang(asked.compiler)) if asked.compiler else None
    numbers, began = range(asked.first, asked.first + asked.count), time.monotonic()
    told: Counter[str] = Counter()
    for until, counted in at_length(asked.kind, numbers, program):
        seconds, told = time.monotonic() - began, counted
        print(f"{asked.kind} {asked.first:,} to {until:,}: {seconds:,.0f} s", flush=True)
    print(", ".join(f"{name} {number:,}" for name, number in told.most_common()))


if __name__ == "__main__":
    main()
