"""The worlds there are, by name: how to play one, and what to do with the transcript of one."""

from folkmoot.simulate.audit import Violation
from folkmoot.simulate.federation.world import FederationWorld
from folkmoot.simulate.iteration.world import IterationWorld
from folkmoot.simulate.job.world import JobWorld
from folkmoot.simulate.report import WorldReport
from folkmoot.simulate.run.world import RunWorld
from folkmoot.simulate.shrink import shrink
from folkmoot.simulate.transcript import Transcript, parse
from folkmoot.simulate.world import World

WORLDS: dict[str, type[World]] = {
    "run": RunWorld,
    "federation": FederationWorld,
    "iteration": IterationWorld,
    "job": JobWorld,
}


def play(name: str, seed: int) -> WorldReport:
    """Play the world of a seed."""
    return WORLDS[name](seed).report()


def replay(transcript: str) -> Violation | None:
    """Feed a transcript to the machine as it is now; the violation it ends in, if it still does.

    That a machine never reaches its end is seen by playing the seed again.
    """
    return _read(transcript).replay()[1]


def shorten(transcript: str) -> str:
    """A shorter transcript that fails in the same way."""
    return str(shrink(_read(transcript)))


def _read(transcript: str) -> Transcript:
    return parse(transcript, {w.audit_type.name: w.audit_type for w in WORLDS.values()})
