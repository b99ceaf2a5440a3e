"""Measure every process of one benchmark cell, wherever it forked to.

Each process of a cell inherits one environment variable; `/proc/*/environ` finds them all, also
those that a peer detached from its parent. CPU seconds include children that were waited for, so a
peer that starts a process for each message is charged for it.
"""

import os
import signal
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


class Cell:
    """The processes whose environment has `variable=name`."""

    def __init__(self, variable: str, name: str) -> None:
        self.needle = f"{variable}={name}".encode()
        self._ours: dict[int, bool] = {}

    def pids(self) -> list[int]:
        alive = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]
        # A pid between fork and exec may still show its parent's environment: that is ours as well.
        self._ours = {pid: self._ours.get(pid) or self._is_ours(pid) for pid in alive}
        return [pid for pid, ours in self._ours.items() if ours]

    def _is_ours(self, pid: int) -> bool:
        try:
            return self.needle in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # gone, or somebody else's
            return False

    def cpu(self) -> float:
        """CPU seconds of all living processes and the children they have waited for."""
        return sum(cpu_seconds(pid) for pid in self.pids())

    def kill(self) -> None:
        """End what is left of the cell, each process by its own id."""
        while left := [pid for pid in self.pids() if _state(pid) not in ("Z", "X", "")]:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    fields = _stat(pid)
    return fields[0] if fields else ""


def cpu_seconds(pid: int) -> float:
    fields = _stat(pid)
    return sum(int(ticks) for ticks in fields[11:15]) / TICK if fields else 0.0


def running_seconds(pid: int) -> float:
    """CPU seconds of the living threads of a process, to the nanosecond."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            spent += int(task.read_text().split()[0])
        except OSError:  # a thread that has just ended
            continue
    return spent / 1e9


def peak_rss_mb(pid: int) -> float:
    """The most memory the process ever had resident."""
    return _of_status(pid, "VmHWM:")


def own_memory_mb(pid: int) -> float:
    """The memory that the process has resident now, without pages of files; 0 when it is gone."""
    return _of_status(pid, "RssAnon:")


def _of_status(pid: int, name: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    for line in status.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return 0.0


def available_mb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/meminfo has no MemAvailable line; this benchmark needs Linux")
