"""The coordinator's shell in a simulated world: it checks signatures, feeds the machine, ticks when
the machine asks, journals before it speaks, and can die between the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from folkmoot.core.coordinator import decode, encode, machine
from folkmoot.core.coordinator import messages as m
from folkmoot.simulate.loop import Loop, Node
from folkmoot.simulate.network import Network
from folkmoot.simulate.run.audit import Audit

if TYPE_CHECKING:
    from folkmoot.simulate.run.toy_client import Client


class Shell(Node):
    def __init__(self, loop: Loop, network: Network, audit: Audit) -> None:
        super().__init__(loop)
        self.network = network
        self.audit = audit
        self.version = 0  # of the state; kept with it in the journal
        self.journal = b""
        self.connected: dict[bytes, Client] = {}
        self.die_before_sending = False
        self._tick_at: int | None = None

    def start(self) -> None:
        """Begin with what the journal holds."""
        if self.journal:
            self.audit.state = decode(self.journal)
        self._plan_tick()

    def forget(self) -> None:
        # States are values: encoding the last one now is what was journalled when it was made.
        self.journal = encode(self.audit.state)
        self.connected = {}
        self._tick_at = None
        self.die_before_sending = False

    def receive(self, origin: Client, message: m.AnyEvent) -> None:
        """A signed message; `origin` is whose signature it carries."""
        self.connected[origin.id] = origin
        effects: tuple[m.Effect, ...] = ()
        if getattr(message, "sender", b"") == origin.id and self._plausible(message):
            effects = self.submit(message)
        if self.up and origin.wants_answers:
            refused = [e for e in effects if isinstance(e, m.Refused)]
            self.network.send(self, origin, origin.answered, message, *refused)
        if self.up and isinstance(message, m.HealthCheck | m.Join):
            self._tell(origin)

    def show(self, origin: Client) -> None:
        """A client asks for the state."""
        self.connected[origin.id] = origin
        self._tell(origin)

    def submit(self, message: m.AnyEvent) -> tuple[m.Effect, ...]:
        before = self.audit.state
        effects = self.audit.submit(self.loop.now, self.loop.random.getrandbits(64), message)
        if self.audit.state is not before:
            self.version += 1
        if any(isinstance(effect, m.StateChanged) for effect in effects):
            if self.die_before_sending:
                self.crash()
                return effects
            for client in self.connected.values():
                self._tell(client)
        self._plan_tick()
        return effects

    def _plausible(self, message: Any) -> bool:
        """What the machine leaves to its shell: that a checkpoint is where its message says."""
        if not isinstance(message, m.OpportunisticCooldown):
            return True
        model = self.audit.stored.get(message.location)
        return model is not None and model.hash == message.model_hash

    def _tell(self, client: Client) -> None:
        self.network.send(self, client, client.see, self.version, self.audit.state)

    def _plan_tick(self) -> None:
        due = machine.next_tick(self.audit.state, self.loop.now)
        if due is not None and (self._tick_at is None or due < self._tick_at):
            self._tick_at = due
            self.loop.at(due, self._tick, self.life, due)

    def _tick(self, life: int, due: int) -> None:
        if life != self.life or due != self._tick_at:
            return
        if self.frozen_until > self.loop.now:
            self._tick_at = self.frozen_until
            self.loop.at(self.frozen_until, self._tick, life, self.frozen_until)
            return
        self._tick_at = None
        self.submit(m.Tick())
