"""Workers of the jobs in these tests. They leave traces in the folder that their config names."""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from folkmoot.unified.rpc.methods import rpc
from folkmoot.unified.worker import SubMaster, Worker


class Stepper(Worker):
    """Counts steps until the file `finish` is there; each step is a line with its process."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def start(self) -> int:
        step = 0
        with (self.folder / f"{self.name}.steps").open("a", buffering=1) as steps:
            while not (self.folder / "finish").exists() and not self.stopping:
                steps.write(f"{step} {os.getpid()} {self.actor.incarnation}\n")
                self.progress(step=step)
                step += 1
                self.current.stopping.wait(0.01)
        return step


class Fills(Stepper):
    """Leaves large records in the channel `c`, and says which files they are in."""

    def start(self) -> int:
        channel = self.channel("c")
        channel.put(bytes(1_000_000))
        channel.flush()
        mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
        files = sorted(path for path in mapped if "/heap." in path)
        (self.folder / "held").write_text("\n".join(files))
        return super().start()


class Caretaker(SubMaster):
    """Says which worlds it was told of."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def check_child(self, world: Sequence[str]) -> dict[str, str]:
        with (self.folder / "checked").open("a") as file:
            file.write(f"{' '.join(world)}\n")
        return super().check_child(world)


class Fails(Stepper):
    """Raises once the file `fail` is there."""

    lives = 100  # how many of its processes do

    def start(self) -> int:
        if self.actor.incarnation > self.lives:
            return super().start()
        while not (self.folder / "fail").exists():
            self.current.stopping.wait(0.01)
        raise ArithmeticError("the loss is not a number")


class FailsOnce(Fails):
    """Only its first process does."""

    lives = 1


class Deaf(Stepper):
    """Does not stop when it is asked to."""

    def start(self) -> int:
        (self.folder / f"{self.name}.pid").write_text(str(os.getpid()))
        threading.Event().wait()
        return 0

    def stop(self) -> None:
        pass


class Adder(Worker):
    """Answers calls."""

    @rpc
    def add(self, a: int, b: int) -> int:
        return a + b


class Asker(Worker):
    """Calls the adders."""

    def start(self) -> list[int]:
        return self.group("adder").call(Adder.add, 2, b=3).result(30)


def breaks_at_birth() -> None:
    raise AssertionError("never called: its module is fine, its config is not")


class Gates:
    """Stops at a gate in each stage until the test opens it."""

    folder: Path

    def pass_gate(self, name: str, incarnation: int, stage: str) -> None:
        (self.folder / f"{name}.{incarnation}.at.{stage}").touch()
        while not (self.folder / f"gate.{stage}").exists():
            threading.Event().wait(0.01)


class Gated(Stepper, Gates):
    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.pass_gate(self.name, self.actor.incarnation, "init")

    def start(self) -> int:
        with (self.folder / f"{self.name}.steps").open("a") as steps:
            steps.write(f"0 {os.getpid()} {self.actor.incarnation}\n")
        self.pass_gate(self.name, self.actor.incarnation, "run")
        steps_taken = super().start()
        if self.stopping:
            self.pass_gate(self.name, self.actor.incarnation, "stop")
        return steps_taken


class GatedMaster(Caretaker, Gates):
    def check_child(self, world: Sequence[str]) -> dict[str, str]:
        self.pass_gate(self.name, self.actor.incarnation, "check")
        return super().check_child(world)
