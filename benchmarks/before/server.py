"""As ours/server.py, for the code of `systems.BEFORE`."""

import asyncio
import sys
from pathlib import Path

from folkmoot.federated.config import load
from folkmoot.federated.server import serving

from folkmoot.core.federation import messages as m
from folkmoot.federated.coordinator import Coordinator

sys.path.insert(0, str(Path(__file__).parents[1]))
from federation_server import log_round_start, serve, write_federation


class LoggedCoordinator(Coordinator):
    def submit(self, event):
        effects = super().submit(event)
        for effect in effects:
            if isinstance(effect, m.Moved):
                log_round_start(effect.round + (effect.phase == "ROUND"))
        return effects


asyncio.run(serve(serving(load(write_federation()), LoggedCoordinator)))
