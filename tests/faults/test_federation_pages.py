"""What docs/federation-machines.md and the regions of docs/federation.md say, typed on machines."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from faults.machines import Machines, Terminal, machines, need_namespaces
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.host.signing import Identity
from support.hierarchy import Learner, flat, upper_config

pytestmark = pytest.mark.faults

DOCS = Path(__file__).parents[2] / "docs"
#: Participants of one kind, told apart by a file in their folder; the first waits at a gate.
MODULE = """
from pathlib import Path
from support.hierarchy import Learner

class Mine(Learner):
    def __init__(self):
        super().__init__(int(Path("number").read_text()))

    def train_round(self, weights, epochs, epoch_base, config):
        if epoch_base == 1 and Path("gate").exists():
            print("at the gate", flush=True)
            Path("gate").read_bytes()
        return super().train_round(weights, epochs, epoch_base, config)

    def init_weights(self):
        return {"w": self.own, "seen": __import__("numpy").zeros(2, "int64")}
"""


def section(page: str, heading: str) -> str:
    text = (DOCS / page).read_text()
    return text[text.index(heading) :].split("\n## ")[0]


def tables(text: str) -> list[str]:
    return re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[str]:
    """The lines to type, with continued ones made whole."""
    text = text.replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.startswith("    folkmoot ")]


class Desks:
    """Terminals on the machines, each with a folder of its own."""

    def __init__(self, where: Machines, folder: Path, stack: ExitStack) -> None:
        self._where, self._folder, self._stack = where, folder, stack

    def at(self, machine: str, name: str) -> Terminal:
        made = Terminal(self._where, machine, self._folder / name)
        self._stack.callback(made.end)
        return made

    def participant(self, machine: str, number: int) -> Terminal:
        made = self.at(machine, f"participant-{number}")
        (made.folder / "my_module.py").write_text(MODULE)
        (made.folder / "number").write_text(str(number))
        return made


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Desks]:
    need_namespaces()
    with machines() as where, ExitStack() as stack:
        yield Desks(where, tmp_path, stack)


def typed(desk: Terminal, line: str) -> str:
    """Type a line and wait for its end; what it printed."""
    desk.type(line)
    assert desk.process is not None
    assert desk.process.wait(60) == 0, desk.output.read_text()
    return desk.output.read_text().strip()


def give(source: Path, *names: str, to: Path) -> None:
    """By a way that both trust."""
    to.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copy(source / name, to)


async def test_participants_join_from_other_machines_as_the_page_says(
    desks: Desks, tmp_path: Path
) -> None:
    page = (DOCS / "federation-machines.md").read_text()
    page = page.replace("coordinator.example", "10.77.0.1").replace("192.0.2.7", "10.77.0.1")
    lines = commands(page)
    make = next(line for line in lines if "tls make" in line)
    serve = next(line for line in lines if "federate serve" in line)
    join = next(line for line in lines if "federate join" in line)
    (config,) = tables(page)
    coordinator = desks.at("server", "coordinator")
    typed(coordinator, make)
    text = config.replace("rounds = 100", "rounds = 3")
    (coordinator.folder / "federation.toml").write_text(text)
    coordinator.type(serve)
    coordinator.shows("it carries weights at port 50062")
    people = [desks.participant(machine, n) for n, machine in enumerate(("one", "two"))]
    for person, name in zip(people, ("hospital-a", "hospital-b"), strict=True):
        files = ("ca.pem", f"{name}.pem", f"{name}.key")
        give(coordinator.folder / "tls", *files, to=person.folder)
        person.type(join.replace("hospital-a", name))
    for person in people:
        person.shows("the federation has finished")
    coordinator.shows("finished; the model is")


async def test_regions_make_the_flat_model_although_an_aggregator_is_killed(
    desks: Desks, tmp_path: Path
) -> None:
    """A coordinator and two aggregators with TLS, two participants each, as the page says."""
    text = section("federation.md", "## Regions").replace("coordinator.example", "10.77.0.1")
    above, region = tables(text)
    make, key, aggregate, join = commands(text)
    coordinator = desks.at("server", "coordinator")
    typed(coordinator, "folkmoot tls make 10.77.0.1 --client north --client south")
    regions = {
        name: desks.at(machine, name) for name, machine in (("north", "one"), ("south", "two"))
    }
    addresses = {"north": "10.77.0.2", "south": "10.77.0.3"}
    for name, desk in regions.items():
        give(
            coordinator.folder / "tls",
            "ca.pem",
            f"{name}.pem",
            f"{name}.key",
            to=desk.folder / "tls",
        )
        typed(desk, make.replace("north.example", addresses[name]))
        above = above.replace(f"…{name}'s key…", typed(desk, key))
    upper_config(tmp_path / "weights", {})
    give(tmp_path / "weights", "first.safetensors", to=coordinator.folder)
    (coordinator.folder / "federation.toml").write_text(above)
    coordinator.type("folkmoot federate serve federation.toml")
    coordinator.shows("our key is")
    pinned = Identity.load(coordinator.folder / "federation-state/coordinator.key").public.hex()
    for name, desk in regions.items():
        own = re.sub("…64 hex digits.*…", pinned, region).replace("north", name)
        (desk.folder / "region.toml").write_text(own)
        desk.type(aggregate)
    people = []
    for number, name in enumerate(("north", "north", "south", "south")):
        person = desks.participant(regions[name].name, number)
        give(regions[name].folder / "own", "ca.pem", to=person.folder)
        people.append(person)
    os.mkfifo(people[0].folder / "gate")
    for number, (person, name) in enumerate(
        zip(people, ("north", "north", "south", "south"), strict=True)
    ):
        address = join.replace("north.example", addresses[name]).replace("north", name)
        person.type(f"{address} --key {number}.key")
    people[0].shows("at the gate")
    north = regions["north"]
    assert north.process is not None
    north.process.kill()
    north.process.wait(60)
    north.type(aggregate)
    north.shows("sums go to")
    (people[0].folder / "gate").write_bytes(b"open")
    for person in people:
        person.shows("the federation has finished")
    for desk in regions.values():
        desk.shows("the federation above has finished")
    coordinator.shows("finished; the model is")
    rules = {"rounds": 3, "epochs": 1}
    alone = await flat(tmp_path / "flat", [Learner(n) for n in range(4)], rules=rules)
    with ModelFile(coordinator.folder / "federation-state/bucket/3/global") as made:
        for name, array in made.arrays().items():
            assert array.tobytes() == alone[name].tobytes()
