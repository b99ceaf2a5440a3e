"""The node that holds the machine, as `host/durable` does: apply, record, act, tick when it is due.

The journal (which the audit keeps) survives its death. The effects of what it recorded last may
not: it can die between recording and acting.
"""

from typing import Any

from folkmoot.core.machine import Effect, Tick
from folkmoot.simulate.audit import Audit, Crashed
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node


class CoordinatorNode(Node):
    audit: Audit[Any, Any]

    def __init__(self, loop: Loop, network: Network, audit: Audit[Any, Any]) -> None:
        super().__init__(loop)
        self.network = network
        self.audit = audit
        self.version = 0  # of the state; kept with it in the journal
        # It dies instead of carrying out such an effect, and comes back after a pause.
        self.crash_before: tuple[type[Effect], float] | None = None
        self._tick_at: int | None = None

    def start(self) -> None:
        self._plan_tick()

    def forget(self) -> None:
        self.audit.tell(Crashed())
        self.crash_before = self._tick_at = None

    def act(self, effects: tuple[Effect, ...]) -> None:
        """Carry out what the machine asks for."""

    def submit(self, event: Any) -> tuple[Effect, ...]:
        before = self.audit.state
        effects = self.audit.submit(self.loop.now, self.loop.random.getrandbits(64), event)
        if self.audit.state is not before:
            self.version += 1
            deadly, pause = self.crash_before or ((), 0)
            if any(isinstance(effect, deadly) for effect in effects):
                self.crash(pause)
                return effects
        self.act(effects)
        self._plan_tick()
        return effects

    def _plan_tick(self) -> None:
        due = self.audit.machine.next_tick(self.audit.state, self.loop.now)
        if due is not None and (self._tick_at is None or due < self._tick_at):
            self._tick_at = due
            self.after(due - self.loop.now, self._tick, due)

    def _tick(self, due: int) -> None:
        if due == self._tick_at:
            self._tick_at = None
            self.submit(Tick())
