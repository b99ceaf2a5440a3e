"""PPO on Gymnasium's CartPole as a job of four roles, whose rollout workers are killed on the way.

    trainer   drives: asks for games, estimates advantages, lets actor and critic learn from them
    rollout   two workers, each with several games that go on from call to call
    actor     learns the policy
    critic    learns what a state is worth

A rollout worker gets the policy with each call, so one that was started anew plays at once; until
then the trainer goes on with the games of the other. Actor and critic write down what they have
learned, and the trainer how far it is: each of them could die as well.

    python examples/job_ppo.py                     # until the mean return is 450; one minute or two
    python examples/job_ppo.py --steps 10 --nobody-dies
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import msgspec
import numpy as np
import torch
from job_watch import add_deaths, add_where, draw, run_and_show
from torch import Tensor, nn

from folkmoot.core.job import JobSpec
from folkmoot.host.files import write_atomically
from folkmoot.unified.api import RLJobBuilder, Trainer, Worker, answered, rpc

GAMMA, LAMBDA = 0.99, 0.95
CLIP, ENTROPY = 0.2, 0.01
LR, EPOCHS, MINIBATCH = 1.5e-3, 4, 256
GAMES, MOVES = 16, 64  # of one rollout worker: side by side, and in one call
Weights = dict[str, Tensor]


class Played(NamedTuple):
    """What one worker saw. T moves, N games; row T of `states` is where the last move led."""

    states: Any  # T+1, N, 4
    actions: Any  # T, N
    log_probs: Any
    rewards: Any
    lost: Any  # the game ended because of this move
    ended: Any  # so it did, or because it had lasted long enough
    real: Any  # False where the environment only began a new game
    returns: list[float]  # of games that ended


class Rollout(Worker):
    def __init__(self, seed: int, dies_at: int = 0) -> None:
        torch.set_num_threads(1)
        # A worker that was started anew plays other games than it did before.
        torch.manual_seed(seed + 100 * self.rank + 10 * self.actor.incarnation)
        self.games = gymnasium.make_vec(
            "CartPole-v1", GAMES, vectorization_mode="vector_entry_point"
        )
        self.states, _ = self.games.reset(seed=torch.initial_seed())
        self.began = np.zeros(GAMES, bool)
        self.scores = np.zeros(GAMES)
        self.policy = network(2)
        self.dies_at, self.calls = dies_at, 0

    @rpc
    def play(self, weights: Weights) -> Played:
        self.policy.load_state_dict(weights)
        rows, returns = [], []
        for move in range(MOVES):
            self.perhaps_die(move)
            rows.append(self.move(returns))
        columns = [np.stack(column) for column in zip(*rows, strict=True)]
        columns[0] = np.concatenate([columns[0], self.states[None]])
        return Played(*columns, returns)

    def move(self, returns: list[float]) -> tuple[Any, ...]:
        with torch.no_grad():
            choice = torch.distributions.Categorical(
                logits=self.policy(torch.from_numpy(self.states))
            )
            actions = choice.sample()
            log_probs = choice.log_prob(actions).numpy()
        states, real = self.states, ~self.began
        self.states, rewards, lost, late, _ = self.games.step(actions.numpy())
        self.scores += rewards
        self.began = ended = lost | late
        returns += self.scores[ended].tolist()
        self.scores[ended] = 0
        return states, actions.numpy(), log_probs, rewards, lost, ended, real

    def perhaps_die(self, move: int) -> None:
        """Every worker once, in the middle of a call, one after the other; 0 is never."""
        self.calls += move == 0
        mortal = self.dies_at and self.actor.incarnation == 1 and move == MOVES // 2
        if mortal and self.calls == self.dies_at * (1 + self.rank):
            os.kill(os.getpid(), signal.SIGKILL)


class Learner(Worker):
    """A network that learns, and keeps what it has learned in a file."""

    outputs: int

    def __init__(self, folder: str, seed: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.path = Path(folder) / f"{self.name}.pt"
        self.net = network(self.outputs)
        self.optimizer = torch.optim.Adam(self.net.parameters(), LR, eps=1e-5)
        if self.path.exists():
            net, optimizer = torch.load(self.path)
            self.net.load_state_dict(net)
            self.optimizer.load_state_dict(optimizer)

    @rpc
    def weights(self) -> Weights:
        return self.net.state_dict()

    @rpc
    def learn(self, *samples: Tensor) -> float:
        """Several passes over the samples; gives the mean loss."""
        losses = [
            self.descend(self.loss(*(sample[some] for sample in samples)))
            for _ in range(EPOCHS)
            for some in torch.randperm(len(samples[0])).split(MINIBATCH)
        ]
        staged = self.path.with_suffix(".new")
        torch.save((self.net.state_dict(), self.optimizer.state_dict()), staged)
        staged.replace(self.path)
        return sum(losses) / len(losses)

    def descend(self, loss: Tensor) -> float:
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        return loss.item()

    def loss(self, *samples: Tensor) -> Tensor:
        raise NotImplementedError


class Actor(Learner):
    outputs = 2

    def loss(self, *samples: Tensor) -> Tensor:
        """PPO's clipped objective, and a little for staying undecided."""
        states, actions, log_probs, advantages = samples
        choice = torch.distributions.Categorical(logits=self.net(states))
        ratio = (choice.log_prob(actions) - log_probs).exp()
        gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
        return -(gain.mean() + ENTROPY * choice.entropy().mean())


class Critic(Learner):
    outputs = 1

    @rpc
    def values(self, states: Any) -> Any:
        with torch.no_grad():
            return self.net(torch.from_numpy(states))[..., 0].numpy()

    def loss(self, *samples: Tensor) -> Tensor:
        states, worth = samples
        return nn.functional.smooth_l1_loss(self.net(states)[:, 0], worth)


def network(outputs: int) -> nn.Module:
    net = nn.Sequential(
        nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
    )
    with torch.no_grad():
        net[-1].weight.mul_(0.01 if outputs > 1 else 1.0)  # a policy begins undecided
    return net


def advantages(played: Played, values: Any) -> Any:
    """Generalised advantage estimation. A game that lasted long enough would have gone on."""
    result, ahead = np.zeros_like(played.rewards), 0.0
    for t in reversed(range(len(result))):
        following = GAMMA * values[t + 1] * ~played.lost[t]
        ahead = (
            played.rewards[t] + following - values[t] + GAMMA * LAMBDA * ahead * ~played.ended[t]
        )
        result[t] = ahead
    return result


class PPO(Trainer):
    def __init__(self, folder: str, steps: int, target: float) -> None:
        self.path = Path(folder) / "curve.json"
        self.steps, self.target = steps, target
        self.curve: list[Point] = load_curve(self.path)
        self.recent: list[float] = []
        self.began = time.monotonic()

    def first_step(self) -> int:
        return len(self.curve)

    def step(self, number: int) -> dict[str, float] | None:
        if number == self.steps or (self.curve and self.curve[-1].mean >= self.target):
            return None
        actor, critic = (self.group(role, patience=self.patience) for role in ("actor", "critic"))
        weights = actor.call_rank0(Actor.weights).result()
        parts = answered(self.group("rollout").call(Rollout.play, weights))
        played = together(parts)
        values = critic.call_rank0(Critic.values, played.states).result()
        advantage = advantages(played, values)
        states, actions, log_probs, gains, worth = (
            torch.from_numpy(column[played.real])
            for column in (played.states[:-1], *played[1:3], advantage, advantage + values[:-1])
        )
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        learning = (
            actor.call_rank0(Actor.learn, states, actions, log_probs, gains),
            critic.call_rank0(Critic.learn, states, worth),
        )
        for call in learning:
            call.result()
        return self.note(number, played.returns, len(parts))

    def note(self, number: int, returns: list[float], workers: int) -> dict[str, float]:
        self.recent = [*self.recent, *returns][-40:]
        mean = float(np.mean(self.recent)) if self.recent else 0.0
        self.curve.append(Point(mean, workers))
        write_atomically(self.path, msgspec.json.encode(self.curve))
        missing = len(self.group("rollout")) - workers
        if missing or number % 5 == 0:
            told = f"  {missing} of the rollout workers is missing" if missing else ""
            seconds = time.monotonic() - self.began
            print(f"step {number:3}  {seconds:4.0f} s  mean return {mean:5.1f}{told}", flush=True)
        return {"mean_return": mean}

    def result(self) -> float:
        return self.curve[-1].mean


class Point(msgspec.Struct, frozen=True, array_like=True):
    """After a step: the mean return of the last games, and how many workers played."""

    mean: float
    workers: int


def load_curve(path: Path) -> list[Point]:
    return msgspec.json.decode(path.read_bytes(), type=list[Point]) if path.exists() else []


def together(parts: list[Played]) -> Played:
    """Games side by side."""
    columns = [np.concatenate(column, axis=1) for column in list(zip(*parts, strict=True))[:-1]]
    return Played(*columns, [score for part in parts for score in part.returns])


def make_job(options: argparse.Namespace, folder: Path) -> JobSpec:
    learner = {"folder": str(folder), "seed": options.seed}
    trainer = {"folder": str(folder), "steps": options.steps, "target": options.target}
    dies_at = 0 if options.nobody_dies else options.dies_at
    job = RLJobBuilder("ppo").global_env(OMP_NUM_THREADS="1")
    job.trainer("job_ppo:PPO").config(trainer)
    # One process each: no group of processes to be formed.
    job.actor("job_ppo:Actor").backend("worker").config(learner)
    job.critic("job_ppo:Critic").backend("worker").config(learner)
    job.rollout("job_ppo:Rollout").total(2).config(seed=options.seed, dies_at=dies_at)
    return job.build()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--steps", type=int, default=200, help="at most so many")
    parser.add_argument("--target", type=float, default=450, help="mean return of the last games")
    add_deaths(parser)
    add_where(parser)
    parser.add_argument("--plot", type=Path, default=Path("out/job_ppo.png"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        job = make_job(options, folder)
        outcome = run_and_show(job, folder / "job", ray_address=options.ray_address)
        curve = load_curve(folder / "curve.json")
    if not curve or outcome.exit_code:
        return 1
    print(f"mean return {curve[0].mean:.1f} -> {curve[-1].mean:.1f} in {len(curve)} steps")
    options.plot.parent.mkdir(parents=True, exist_ok=True)
    means = [(float(step), point.mean) for step, point in enumerate(curve)]
    missing = [float(step) for step, point in enumerate(curve) if point.workers < 2]
    draw(options.plot, means, missing, xlabel="step", ylabel="mean return", title="CartPole, PPO")
    print(f"plot        {options.plot}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
