"""Seeded worlds that run the core machines under faults, and what must hold in them.

`play(world, seed)` plays one world; `replay(transcript)` feeds what a failing world printed to the
machine as it is now.
"""

from folkmoot.simulate.report import WorldReport
from folkmoot.simulate.worlds import WORLDS, play, replay

__all__ = ["WORLDS", "WorldReport", "play", "replay"]
