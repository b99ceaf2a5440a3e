"""Seeded worlds that run the core machines under faults, and what must hold in them.

`simulate(seed)` plays one world around the machine of a run; `replay(transcript)` feeds what a
failing world printed to the machine as it is now.
"""

from folkmoot.simulate.report import Report
from folkmoot.simulate.run.world import simulate
from folkmoot.simulate.transcript import replay

__all__ = ["Report", "replay", "simulate"]
