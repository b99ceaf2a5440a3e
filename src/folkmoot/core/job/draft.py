"""A step on its way: the state so far, which nobody else sees, and the effects in their order."""

from typing import Any

from msgspec.structs import replace

from folkmoot.core.job import messages as m
from folkmoot.core.job.state import Actor, Role, Stage, State


class Draft:
    def __init__(self, state: State, now: int) -> None:
        self.state, self.now = state, now
        self.effects: list[m.Effect] = []
        self.changes = 0  # so that one who waits for nothing to change can see it
        self._own: set[str] = set()  # the dicts that are no longer those of the state before

    def say(self, effect: m.Effect) -> None:
        self.effects.append(effect)

    def set(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)
        self.changes += 1

    def actor(self, id: str, **changes: Any) -> Actor:
        """Change an actor."""
        return self._put("actors", id, replace(self.state.actors[id], **changes))  # type: ignore[no-any-return]

    def role(self, name: str, **changes: Any) -> Role:
        """Change a role."""
        return self._put("roles", name, replace(self.state.roles[name], **changes))  # type: ignore[no-any-return]

    def add(self, actor: Actor) -> None:
        self.set(actors=dict(sorted({**self.state.actors, actor.id: actor}.items())))
        self._own.add("actors")

    def stage(self, id: str, stage: Stage, why: str = "", **changes: Any) -> Actor:
        """Take an actor to another stage, and tell it."""
        before = self.state.actors[id]
        if before.stage != stage:
            self.say(m.ActorChanged(id, before.incarnation, before.stage, stage, why))
        return self.actor(id, stage=stage, **changes)

    def after(self, seconds: float) -> int | None:
        """The time when so many seconds have passed; never, for none."""
        return self.now + round(seconds * 1000) if seconds else None

    def _put(self, name: str, key: str, value: Any) -> Any:
        self._dict(name)[key] = value
        return value

    def _dict(self, name: str) -> dict[str, Any]:
        """A dict of the state to write to: copied once, however much is written."""
        if name not in self._own:
            self.state = replace(self.state, **{name: dict(getattr(self.state, name))})
            self._own.add(name)
        self.changes += 1
        return getattr(self.state, name)  # type: ignore[no-any-return]
