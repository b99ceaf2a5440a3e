"""Reinforcement learning driven by a trainer, with the roles under their usual names.

    RLJobBuilder("ppo").trainer("ppo:Trainer").actor("ppo:Actor").rollout("ppo:Rollout").total(4)

The job is finished when the trainer is; the others serve it. Actor and critic are elastic training:
their workers form one process group and restart together. Each of the others restarts alone.
"""

from collections.abc import Iterator
from typing import Self

from folkmoot.core.config import Broken
from folkmoot.unified.api.builder import JobBuilder
from folkmoot.unified.api.role import Entry, RoleBuilder

TRAINER, ACTOR = "trainer", "actor"


class RLJobBuilder(JobBuilder):
    def trainer(self, entry: Entry) -> RoleBuilder[Self]:
        """Calls the other roles; one worker."""
        return self.role(TRAINER).run(entry).backend("trainer")

    def actor(self, entry: Entry) -> RoleBuilder[Self]:
        """Learns the policy."""
        return self.role(ACTOR).train(entry).not_driver()

    def critic(self, entry: Entry) -> RoleBuilder[Self]:
        """Learns the value of states."""
        return self.role("critic").train(entry).not_driver()

    def rollout(self, entry: Entry) -> RoleBuilder[Self]:
        """Plays the policy, or generates with it."""
        return self.role("rollout").run(entry).not_driver()

    def reference(self, entry: Entry) -> RoleBuilder[Self]:
        """The policy as it was, to stay near."""
        return self.role("reference").run(entry).not_driver()

    def reward(self, entry: Entry) -> RoleBuilder[Self]:
        """Judges what was generated."""
        return self.role("reward").run(entry).not_driver()

    def with_collocation_all(self, *exclude: str) -> Self:
        """All roles that are defined so far, but the trainer and these."""
        return super().with_collocation_all(TRAINER, *exclude)

    def _problems(self) -> Iterator[Broken]:
        yield from super()._problems()
        for name in (TRAINER, ACTOR):
            if name not in self._roles:
                yield Broken("roles", f"{name} is missing: .{name}(entry)")

    def _gpu(self, role: str) -> float:
        return 0.0 if role == TRAINER else super()._gpu(role)
