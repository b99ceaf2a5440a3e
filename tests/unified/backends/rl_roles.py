"""The six roles of PPO with numbers in place of networks, to see that the calls go right."""

import os
import signal
from pathlib import Path

from folkmoot.unified.api import Trainer, Worker, answered, rpc

PROMPTS = [f"prompt {n}" for n in range(7)]


class Rollout(Worker):
    version = -1

    @rpc
    def load(self, version: int) -> str:
        self.version = version
        return self.name

    @rpc
    def generate(self, prompts: list[str]) -> list[str]:
        return [f"{prompt} answered by {self.version}" for prompt in prompts]


class Judge(Worker):
    """Reward, reference and critic alike."""

    @rpc
    def judge(self, texts: list[str]) -> list[int]:
        return [len(text) for text in texts]


class Actor(Worker):
    version = 0

    @rpc
    def learn(self, texts: list[str], *judged: list[int]) -> int:
        assert all(len(texts) == len(numbers) for numbers in judged)
        self.version += 1
        return self.version


class Mock(Trainer):
    def __init__(self, episodes: int = 3) -> None:
        self.episodes, self.versions = episodes, [0]

    def step(self, number: int) -> dict[str, int] | None:
        if number == self.episodes:
            return None
        rollouts = self.group("rollout")
        loaded = rollouts.call(Rollout.load, self.versions[-1]).result()
        assert loaded == ["rollout-0", "rollout-1"]
        texts = rollouts.call_batch(Rollout.generate, len(PROMPTS), PROMPTS).result()
        assert texts == [f"{prompt} answered by {self.versions[-1]}" for prompt in PROMPTS]
        judged = [self.judged(role, texts) for role in ("reward", "reference", "critic")]
        versions = self.group("actor").call(Actor.learn, texts, *judged).result()
        assert len(set(versions)) == 1, "the actors are equally far"
        self.versions.append(versions[0])
        return {"version": versions[0]}

    def judged(self, role: str, texts: list[str]) -> list[int]:
        return self.group(role).call_batch(Judge.judge, len(texts), texts).result()

    def result(self) -> list[int]:
        return self.versions


class Mortal(Worker):
    """Its first process of each rank in `ranks` is killed by its first call."""

    def __init__(self, ranks: list[int]) -> None:
        self.ranks = ranks

    @rpc
    def work(self) -> int:
        if self.actor.incarnation == 1 and self.rank in self.ranks:
            os.kill(os.getpid(), signal.SIGKILL)
        return self.rank


class Persistent(Trainer):
    """Asks everybody for work until all have answered in one step."""

    def __init__(self, folder: str) -> None:
        self.path = Path(folder) / "answers"

    def step(self, number: int) -> dict[str, int] | None:
        group = self.group("mortal")
        ranks = answered(group.call(Mortal.work))
        with self.path.open("a") as file:
            print(*ranks, file=file)
        return {"answers": len(ranks)} if len(ranks) < len(group) else None
