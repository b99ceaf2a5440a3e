"""Several clients learn one model of Python's standard library, in one process, with DisTrO.

Each client has its own copy of the model, its own share of the data and its own memory of what
it has not sent yet. Every round each sends a few kilobytes; all apply what all sent; their
models stay equal to the last bit, which is checked as they go.

    python examples/learn_together.py                # about two minutes on two cores
    python examples/learn_together.py --clients 8 --steps 1000

Ctrl-C ends the run early and keeps its checkpoint.
"""

import argparse
import random
import sysconfig
import time
from pathlib import Path

from learning_curve import CtrlC, Curve, Display

from folkmoot.core.data_config import DataConfig, TokenFiles
from folkmoot.core.method_config import DistroConfig, MethodConfig
from folkmoot.core.model_config import GptConfig
from folkmoot.core.schedule import Cosine
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning import generate, methods
from folkmoot.learning.checkpoints.save import prune, save
from folkmoot.learning.checkpoints.state_hash import state_hash
from folkmoot.learning.data import Samples, open_data
from folkmoot.learning.data.prepare import Prepared, prepare
from folkmoot.learning.data.tokenizer import Tokenizer, load
from folkmoot.learning.evaluate import Evaluation, Score
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.methods.protocol import Contribution
from folkmoot.learning.models import build

METHOD: MethodConfig = DistroConfig()
BASE_LR = 0.012
SEQUENCE = 128
PROMPT = "def read_file(self, path):\n"


class Client:
    """One member: a model, a method to exchange what it learns, and a share of each batch."""

    def __init__(self, number: int, config: GptConfig, data: Samples, seed: int) -> None:
        self.number, self.data = number, data
        self.model = build(config, seed, "cpu")
        self.method = methods.build(self.model, METHOD)

    def train(self, step: int, clients: int, batch: int, lr: float) -> Contribution:
        first = (step * clients + self.number) * batch
        tokens = self.data.samples(range(first, first + batch))
        return self.method.contribute(lambda _: loss_and_gradients(self.model, tokens), step, lr)


def main(options: argparse.Namespace, ctrl_c: CtrlC) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    print("Preparing the standard library's source: training and held-out files ...", flush=True)
    using, train, held_out = library_data(options)
    config = GptConfig(
        vocab_size=using.vocab_size, layers=4, heads=4, width=options.width, context=SEQUENCE
    )
    clients = [Client(n, config, train, options.seed) for n in range(options.clients)]
    steps = options.steps or steps_in(options.seconds, clients, options.batch)
    size = sum(p.numel() for p in clients[0].model.parameters())
    print(
        f"{len(clients)} clients learn a GPT of {size:,} parameters from {train.count:,} sequences"
        f" of {SEQUENCE} tokens in {steps} rounds.",
        flush=True,
    )
    curve = Curve(dense_bytes=4 * size)
    reached = learn_together(clients, held_out, steps, options.batch, curve, ctrl_c)
    if reached:
        finish(clients[0], using, reached, curve, options)


def learn_together(
    clients: list[Client], held_out: Samples, steps: int, batch: int, curve: Curve, ctrl_c: CtrlC
) -> int:
    """Run the rounds; gives how many were done, fewer than `steps` after Ctrl-C."""
    schedule = Cosine(
        base_lr=BASE_LR, warmup_steps=steps // 20, total_steps=steps, final_lr=BASE_LR / 10
    )
    delay, done = clients[0].method.delay, 0
    in_flight: list[list[bytes]] = []
    with Display(steps, curve) as display:
        while done < steps and not ctrl_c.pressed:
            lr = schedule.lr(done)
            made = [client.train(done, len(clients), batch, lr) for client in clients]
            in_flight.append([one.payload for one in made])
            if done >= delay:
                apply(clients, in_flight.pop(0), done - delay, lr)
            curve.add_round(done, made)
            if done % max(1, steps // 20) == 0:
                curve.add_score(done, score(clients[0], held_out))
            done += 1
            display.show(done)
        if done < steps:
            display.say("Stopped: keeping what was learnt.")
    for late, payloads in enumerate(in_flight):
        apply(clients, payloads, done - len(in_flight) + late, schedule.lr(done))
    curve.add_score(done, score(clients[0], held_out))
    return done


def score(client: Client, held_out: Samples) -> Score:
    return Evaluation(client.model, held_out, sequences=32).finish(32)


def apply(clients: list[Client], payloads: list[bytes], step: int, lr: float) -> None:
    """Everyone takes in what everyone sent, and must end with the same weights."""
    for client in clients:
        client.method.apply(payloads, step, lr)
    hashes = {state_hash(client.model).root for client in clients}
    if len(hashes) > 1:
        raise AssertionError(f"the clients' models differ after round {step}")


def finish(
    client: Client, using: Tokenizer, reached: int, curve: Curve, options: argparse.Namespace
) -> None:
    store = Bucket(str(options.out / "checkpoints"))
    name = save(store, reached, client.model, tokenizer=using, state=client.method.state_dict())
    prune(store, 3, newest=name)
    curve.draw(options.out / "loss.png", f"{options.clients} clients, DisTrO")
    print(f"\n{curve.summary()}")
    print(f"checkpoint  {options.out / 'checkpoints' / name}")
    print(f"loss plot   {options.out / 'loss.png'}\n")
    print("What the model writes:\n")
    stream = generate.tokens(client.model, using.encode(PROMPT), 200, temperature=0.7, top_k=40)
    print(PROMPT + "".join(generate.text(using, stream)))
    print(f'\nMore: folkmoot generate {options.out / "checkpoints"} "import os"')


def library_data(options: argparse.Namespace) -> tuple[Tokenizer, Samples, Samples]:
    """Token files of the standard library; one source file in twenty is held out."""
    library = Path(sysconfig.get_paths()["stdlib"])
    skipped = ("site-packages", "test", "tests", "idle_test", "lib2to3", "pydoc_data", "encodings")
    files = [f for f in sorted(library.rglob("*.py")) if not set(f.parts) & set(skipped)]
    files = files[: options.files or None]
    random.Random(0).shuffle(files)
    cut = max(1, len(files) // 20)
    for name, tokenizer, part in (
        ("train.bin", f"bpe:{options.vocabulary}", files[cut:]),
        ("held_out.bin", str(options.out / "train.tokenizer.json"), files[:cut]),
    ):
        *_, prepared = prepare(part, tokenizer, options.out / name)
        assert isinstance(prepared, Prepared)
    using = load(str(options.out / "train.tokenizer.json"))

    def opened(name: str, wrap: bool) -> Samples:
        source = TokenFiles((str(options.out / name),), prepared.dtype)  # type: ignore[arg-type]
        return open_data(DataConfig(source, SEQUENCE, wrap=wrap), options.seed, using.vocab_size)

    return using, opened("train.bin", True), opened("held_out.bin", False)


def steps_in(seconds: float, clients: list[Client], batch: int) -> int:
    """How many rounds fit into `seconds` here, from trying a few on a model thrown away."""
    trial = [Client(c.number, c.model.config, c.data, seed=0) for c in clients]  # type: ignore[arg-type]
    for step in range(4):
        payloads = [client.train(step, len(trial), batch, 0.0).payload for client in trial]
        apply(trial, payloads, step, 0.0)
        if step == 0:
            start = time.perf_counter()
    return max(50, int(seconds / ((time.perf_counter() - start) / 3)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--steps", type=int, default=0, help="rounds; 0 means what fits --seconds")
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--batch", type=int, default=4, help="sequences a client sees a round")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--files", type=int, default=0, help="use only the first so many files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/demo"))
    return parser.parse_args()


if __name__ == "__main__":
    chosen = arguments()
    with CtrlC() as noted:
        main(chosen, noted)
