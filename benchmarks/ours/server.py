"""Folkmoot's coordinator as `federate serve` runs it; logs the start of each round."""

import asyncio
import sys
from pathlib import Path

from folkmoot.core.federation import messages as m
from folkmoot.federated.coordinator.config import load_federation
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.server import serving
from folkmoot.host.memory import collect_seldom

sys.path.insert(0, str(Path(__file__).parents[1]))
from federation_server import log_round_start, serve, write_federation
from systems import free_port


class LoggedCoordinator(Coordinator):
    def _act(self, step):
        super()._act(step)
        for effect in step.effects:
            if isinstance(effect, m.StateChanged):
                log_round_start(self.state.round + (effect.after == "ROUND"))


collect_seldom()
# The port after a free one, which is the default, may be in use.
config = load_federation(write_federation(f"weights_port = {free_port()}"))
asyncio.run(serve(serving(config, LoggedCoordinator)))
