"""Memory that a step freed is there for the next one."""

from __future__ import annotations

import subprocess
import sys

import pytest

STEPS = """
import resource, sys, threading
import torch
from folkmoot.learning.allocator import keep_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def step():
    blocks = [torch.ones(12_000_000) for _ in range(2)]

def steps():
    for _ in range(3):
        step()
    before = faults()
    for _ in range(5):
        step()
    print(faults() - before)

if sys.argv[1] == "keep" and not keep_memory():
    print("unknown")
else:
    thread = threading.Thread(target=steps)
    thread.start()
    thread.join()
"""


def faults_of(what: str) -> str:
    command = [sys.executable, "-c", STEPS, what]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_steps_in_a_thread_use_the_same_pages_again() -> None:
    kept = faults_of("keep")
    if kept == "unknown":
        pytest.skip("this C library has no settings for its memory")
    assert int(kept) < int(faults_of("leave")) / 10
