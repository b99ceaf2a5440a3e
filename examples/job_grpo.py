"""GRPO: a small language model that a run trained is rewarded until it can add.

First the run: its server and two clients learn from sums of which half are wrong, and leave a
checkpoint (`job_sums.py`). Then the job:

    trainer     drives: draws prompts, compares the answers to each, lets the actor learn
    rollout     two workers that write answers; both are killed on the way, and come back
    reward      checks by a rule whether an answer is right: nothing there was learned
    reference   the model as it was; the actor pays for going away from it
    actor       learns, and leaves a checkpoint that `folkmoot generate` reads

    python examples/job_grpo.py                    # about two minutes on two cores
    python examples/job_grpo.py --steps 8 --nobody-dies
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import job_sums as sums
import msgspec
import torch
from job_watch import add_deaths, add_where, draw, run_and_show
from torch import Tensor, nn

from folkmoot.core.job import JobSpec
from folkmoot.exchange.bucket import Bucket
from folkmoot.host.files import write_atomically
from folkmoot.learning.checkpoints.load import load_model
from folkmoot.learning.checkpoints.save import save
from folkmoot.unified.api import RLJobBuilder, Trainer, Worker, answered, rpc

PROMPTS, GROUP = 24, 16  # prompts in a step, and answers to each
CLIP, KL, EPOCHS = 0.2, 0.02, 2
LR, WARMUP = 6e-4, 10  # Adam's first steps go far, whatever the gradient is
Weights = dict[str, Tensor]


def log_probs(model: nn.Module, tokens: Tensor) -> Tensor:
    """Of every token of the answers, given what stands before it."""
    logits = model(tokens[:, :-1])[:, sums.PROMPT - 1 :].log_softmax(-1)
    return logits.gather(-1, tokens[:, sums.PROMPT :, None])[..., 0]


class Rollout(Worker):
    def __init__(self, checkpoint: str, seed: int, dies_at: int = 0) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed + 100 * self.rank + 10 * self.actor.incarnation)
        self.model = load_model(Path(checkpoint), "cpu")
        self.dies_at, self.calls = dies_at, 0

    @rpc
    @torch.no_grad()
    def generate(self, weights: Weights, prompts: list[str]) -> list[tuple[Tensor, Tensor]]:
        """For every prompt a group of lines, and how probable each of their tokens was."""
        self.perhaps_die()
        self.model.load_state_dict(weights)
        tokens = sums.encode(prompts).repeat_interleave(GROUP, 0)
        tokens = self.write(tokens, lambda logits: torch.multinomial(logits.softmax(-1), 1))
        chances = log_probs(self.model, tokens)
        return list(zip(tokens.split(GROUP), chances.split(GROUP), strict=True))

    @rpc
    @torch.no_grad()
    def best(self, weights: Weights, prompts: list[str]) -> list[str]:
        """The likeliest line of every prompt."""
        self.model.load_state_dict(weights)
        tokens = self.write(sums.encode(prompts), lambda logits: logits.argmax(-1, keepdim=True))
        return sums.decode(tokens)

    def write(self, tokens: Tensor, choose: Any) -> Tensor:
        for _ in range(sums.ANSWER):
            tokens = torch.cat([tokens, choose(self.model(tokens)[:, -1])], dim=1)
        return tokens

    def perhaps_die(self) -> None:
        """Every worker once, one after the other; 0 is never."""
        self.calls += 1
        mortal = self.dies_at and self.actor.incarnation == 1
        if mortal and self.calls == self.dies_at * (1 + self.rank):
            os.kill(os.getpid(), signal.SIGKILL)


class Reward(Worker):
    @rpc
    def judge(self, lines: list[str]) -> list[float]:
        return [float(sums.right(line)) for line in lines]


class Reference(Worker):
    def __init__(self, checkpoint: str) -> None:
        torch.set_num_threads(1)
        self.model = load_model(Path(checkpoint), "cpu")

    @rpc
    @torch.no_grad()
    def log_probs(self, tokens: Tensor) -> Tensor:
        return log_probs(self.model, tokens)


class Actor(Worker):
    def __init__(self, checkpoint: str, folder: str, out: str) -> None:
        torch.set_num_threads(1)
        self.model = load_model(Path(checkpoint), "cpu")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), LR, weight_decay=0.0)
        self.kept, self.out = Path(folder) / "actor.pt", out
        if self.kept.exists():
            model, optimizer = torch.load(self.kept)
            self.model.load_state_dict(model)
            self.optimizer.load_state_dict(optimizer)

    @rpc
    def weights(self) -> Weights:
        return self.model.state_dict()

    @rpc
    def learn(
        self, step: int, tokens: Tensor, before: Tensor, near: Tensor, gains: Tensor
    ) -> float:
        """Gives how far it is from the reference: nats for each token."""
        self.optimizer.param_groups[0]["lr"] = LR * min(1.0, (step + 1) / WARMUP)
        for _ in range(EPOCHS):
            now = log_probs(self.model, tokens)
            ratio = (now - before).exp()
            gain = torch.minimum(ratio * gains, ratio.clamp(1 - CLIP, 1 + CLIP) * gains)
            # Never negative and right on average (http://joschu.net/blog/kl-approx.html, k3).
            distance = (near - now).exp() - (near - now) - 1
            self.descend((KL * distance - gain).mean())
        staged = self.kept.with_suffix(".new")
        torch.save((self.model.state_dict(), self.optimizer.state_dict()), staged)
        staged.replace(self.kept)
        return distance.mean().item()

    def descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    @rpc
    def save(self, step: int) -> None:
        save(Bucket(self.out), step, self.model, tokenizer=sums.TOKENS)


class Point(msgspec.Struct, frozen=True, array_like=True):
    """A step: the share of right answers, the distance, and how many workers wrote them."""

    reward: float
    distance: float
    workers: int


class Curve(msgspec.Struct):
    points: list[Point] = []
    # Of all sums, the share whose likeliest answer is right: before and after.
    best: list[float] = []


def load_curve(folder: Path) -> Curve:
    path = folder / "curve.json"
    return msgspec.json.decode(path.read_bytes(), type=Curve) if path.exists() else Curve()


class GRPO(Trainer):
    def __init__(self, folder: str, steps: int, seed: int) -> None:
        self.folder, self.steps = Path(folder), steps
        self.curve = load_curve(self.folder)
        self.random = random.Random(seed + self.actor.incarnation)
        self.began = time.monotonic()

    def first_step(self) -> int:
        return len(self.curve.points)

    def step(self, number: int) -> dict[str, float] | None:
        actor = self.group("actor", patience=self.patience)
        weights = actor.call_rank0(Actor.weights).result()
        if len(self.curve.best) <= number // self.steps:  # before the first step and after the last
            self.note_best(weights)
        if number == self.steps:
            actor.call_rank0(Actor.save, number).result()
            return None
        tokens, before, workers = self.written(weights)
        near = self.group("reference", patience=self.patience).call_rank0("log_probs", tokens)
        rewards = torch.tensor(self.judged(sums.decode(tokens)))
        gains = advantages(rewards.view(-1, GROUP)).view(-1, 1)
        learning = actor.call_rank0(Actor.learn, number, tokens, before, near.result(), gains)
        return self.note(number, Point(rewards.mean().item(), learning.result(), workers))

    def written(self, weights: Weights) -> tuple[Tensor, Tensor, int]:
        prompts = self.random.sample(sums.all_prompts(), PROMPTS)
        rollouts = self.group("rollout")
        parts = answered(rollouts.call_batch(Rollout.generate, PROMPTS, weights, prompts))
        tokens, before = zip(*(group for part in parts for group in part), strict=True)
        return torch.cat(tokens), torch.cat(before), len(parts)

    def judged(self, lines: list[str]) -> list[float]:
        judges = self.group("reward", patience=self.patience)
        return judges.call_batch(Reward.judge, len(lines), lines).result()

    def note_best(self, weights: Weights) -> None:
        prompts = sums.all_prompts()
        some = self.group("rollout", patience=self.patience)
        rewards = self.judged(some.call_rank0(Rollout.best, weights, prompts).result())
        self.curve.best.append(sum(rewards) / len(rewards))

    def note(self, number: int, point: Point) -> dict[str, float]:
        self.curve.points.append(point)
        write_atomically(self.folder / "curve.json", msgspec.json.encode(self.curve))
        missing = len(self.group("rollout")) - point.workers
        if missing or number % 10 == 0:
            told = f"  {missing} of the rollout workers is missing" if missing else ""
            print(
                f"step {number:3}  {time.monotonic() - self.began:4.0f} s  reward"
                f" {point.reward:.2f}  {point.distance:.2f} nats away{told}",
                flush=True,
            )
        return {"reward": point.reward}

    def result(self) -> list[float]:
        write_atomically(self.folder / "curve.json", msgspec.json.encode(self.curve))
        return self.curve.best


def advantages(rewards: Tensor) -> Tensor:
    """Of each answer, against the others to the same prompt."""
    centred = rewards - rewards.mean(1, keepdim=True)
    return centred / (rewards.std(1, keepdim=True) + 1e-4)


def make_job(options: argparse.Namespace, checkpoint: Path, folder: Path) -> JobSpec:
    out = options.out.resolve()
    model, where = {"checkpoint": str(checkpoint)}, {"folder": str(folder)}
    dies_at = 0 if options.nobody_dies else options.dies_at
    job = RLJobBuilder("grpo").global_env(OMP_NUM_THREADS="1")
    job.trainer("job_grpo:GRPO").config(where, steps=options.steps, seed=options.seed)
    # One process: no group of processes to be formed.
    job.actor("job_grpo:Actor").backend("worker").config(
        model | where, out=str(out / "checkpoints")
    )
    job.rollout("job_grpo:Rollout").total(2).config(model, seed=options.seed, dies_at=dies_at)
    job.reference("job_grpo:Reference").config(model)
    job.reward("job_grpo:Reward")
    return job.build()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=600, help="of the run, before")
    parser.add_argument("--steps", type=int, default=100, help="of the job")
    add_deaths(parser)
    add_where(parser)
    parser.add_argument("--out", type=Path, default=Path("out/job_grpo"))
    options = parser.parse_args()
    out = options.out.resolve()
    checkpoint = sums.learn_together(out / "learned", options.rounds)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = make_job(options, checkpoint, folder)
        outcome = run_and_show(job, folder / "job", ray_address=options.ray_address)
        curve = load_curve(folder)
    if outcome.exit_code:
        return 1
    show(curve, out)
    return 0


def show(curve: Curve, out: Path) -> None:
    rewards = [point.reward for point in curve.points]
    few = max(1, len(rewards) // 5)
    first, last = sum(rewards[:few]) / few, sum(rewards[-few:]) / few
    print(f"reward      {first:.2f} -> {last:.2f} (mean of {few} steps)")
    print(f"likeliest   answer is right for {' -> '.join(f'{share:.0%}' for share in curve.best)}")
    missing = [float(step) for step, point in enumerate(curve.points) if point.workers < 2]
    points = [(float(step), reward) for step, reward in enumerate(rewards)]
    draw(out / "reward.png", points, missing, xlabel="step", ylabel="reward", title="Sums, GRPO")
    print(f"plot        {out / 'reward.png'}")
    print(f'checkpoint  folkmoot generate {out / "checkpoints"} "7+5="')


if __name__ == "__main__":
    sys.exit(main())
