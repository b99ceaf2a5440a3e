"""Every substrate under the same name, so that the same tests run on each."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from folkmoot.unified.substrate import Substrate
from folkmoot.unified.substrate.inprocess import InProcessSubstrate
from folkmoot.unified.substrate.local import LocalSubstrate
from unified.substrate.stand import end_all

Open = Callable[[], Substrate]


@pytest.fixture(params=["local", "inprocess"])
def open_quick(request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
    """For what Ray would take long to show and does not differ in."""
    yield from _open(request, folder)


@pytest.fixture(params=["local", "inprocess", "ray"])
def open_substrate(request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
    """Gives a substrate again and again, as masters one after the other would have it."""
    yield from _open(request, folder)


def _open(request: pytest.FixtureRequest, folder: Path) -> Iterator[Open]:
    if request.param == "inprocess":
        threads = InProcessSubstrate()
        yield lambda: threads
        threads.end()
    elif request.param == "ray":
        yield from _on_ray(request.getfixturevalue("ray_cluster"), folder / "run")
    else:
        yield from _local(folder / "fork_server")


def _on_ray(address: str, home: Path) -> Iterator[Open]:
    from folkmoot.unified.substrate.ray import RaySubstrate

    job = f"test{secrets.token_hex(4)}"
    yield lambda: RaySubstrate(job, home, address)
    end_all(RaySubstrate(job, home, address))


def _local(home: Path) -> Iterator[Open]:
    made: list[LocalSubstrate] = []

    def local() -> Substrate:
        made.append(LocalSubstrate(home, alone=60.0))
        return made[-1]

    yield local
    for substrate in made:
        substrate.close()
    end_all(LocalSubstrate(home, alone=60.0))
