"""The coordinator of a run in its worlds: it checks signatures, answers, and tells the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import messages as c
from folkmoot.simulate.coordinator import CoordinatorNode
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.run.audit import RunAudit

if TYPE_CHECKING:
    from folkmoot.simulate.run.client import ClientNode


class RunCoordinator(CoordinatorNode):
    audit: RunAudit

    def __init__(self, loop: Loop, network: Network, audit: RunAudit) -> None:
        super().__init__(loop, network, audit)
        self.connected: dict[bytes, ClientNode] = {}

    def forget(self) -> None:
        super().forget()
        self.connected = {}

    def receive(self, origin: ClientNode, message: m.AnyEvent) -> None:
        """A signed message; `origin` is whose signature it carries."""
        self.connected[origin.id] = origin
        effects: tuple[m.Effect, ...] = ()
        if getattr(message, "sender", b"") == origin.id and self._plausible(message):
            effects = self.submit(message)
        if self.up:
            refused = [e for e in effects if isinstance(e, m.Refused)]
            self.network.send(self, origin, origin.answered, message, *refused)

    def show(self, origin: ClientNode) -> None:
        """A client asks for the state."""
        self.connected[origin.id] = origin
        self._tell(origin)

    def lose(self, client: ClientNode) -> None:
        """The connection of a client ended: it crashed, or not."""
        lost = self.connected.pop(client.id, None)
        for other in self.connected.values() if lost and self.up else ():
            self.network.send(self, other, other.happen, c.HungUp((client.id,)))

    def act(self, effects: tuple[m.Effect, ...]) -> None:
        if any(isinstance(effect, m.StateChanged) for effect in effects):
            for client in self.connected.values():
                self._tell(client)

    def _plausible(self, message: Any) -> bool:
        """What the machine leaves to its shell: that a checkpoint is where its message says."""
        if not isinstance(message, m.OpportunisticCooldown):
            return True
        model = self.audit.stored.get(message.location)
        return model is not None and model.hash == message.model_hash

    def _tell(self, client: ClientNode) -> None:
        self.network.send(self, client, client.see, self.version, self.audit.state)
