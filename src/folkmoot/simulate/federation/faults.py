"""What goes wrong in the world of a federation besides what can in every world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from folkmoot.core.federation.messages import Aggregate
from folkmoot.simulate.faults import FAULTS, Faults

if TYPE_CHECKING:
    from folkmoot.simulate.federation.world import FederationWorld


def power_cut(world: FederationWorld) -> None:
    """The coordinator dies, most often as a round closes; an unsynced update is lost with it."""
    world.coordinator.lose_an_update = True
    pause = world.lasting(100, 6000)
    if world.loop.chance(0.3):
        world.coordinator.crash(pause)
    else:
        world.coordinator.crash_before = (Aggregate, pause)


def late_for_secure_aggregation(world: FederationWorld) -> None:
    """From now on secure aggregations begin without some who were asked."""
    world.coordinator.excuses = not world.audit.config.rules.asynchronous


FEDERATION_FAULTS: Faults = {
    **FAULTS,
    "power cut": power_cut,
    "late for secure aggregation": late_for_secure_aggregation,
}
