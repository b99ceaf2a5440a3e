"""`folkmoot init`: write a run.toml to begin with."""

from pathlib import Path
from typing import Annotated

import typer

TEMPLATE = """\
# A run of Folkmoot. Everything not said here has a default; `folkmoot up run.toml` tries it out.
run_id = "my-run"

[config]
total_steps = 500                 # rounds of training
min_clients = 2                   # fewer end the epoch
global_batch_size_start = 16      # sequences trained in a round, shared out among the clients
# global_batch_size_end = 64      # where a ramp ends …
# global_batch_size_warmup_tokens = 1_000_000  # … after so many tokens
max_round_train_time = 60         # seconds after which a round ends without the late ones
round_witness_time = 5
warmup_time = 120                 # seconds for loading the model
cooldown_time = 120               # seconds for storing it
epoch_time = 1800                 # seconds; newcomers join between epochs
checkpoint_time = 600             # seconds between checkpoints within an epoch; 0 is none
# rounds_per_epoch = 100          # instead of epoch_time
screening = true                  # results that nobody can have trained are not learnt
verification_percent = 3          # of the results are tried on the samples they were assigned
delay = 1                         # results are applied this many rounds later; 0 waits for them

[model]
max_seq_len = 256
checkpoint = "out/my-run/checkpoints"   # a folder, s3://…, gs://…, az://…, hf://owner/name
keep_checkpoints = 3              # older ones are removed; 0 keeps all

[model.architecture]
type = "gpt"
vocab_size = 256                  # bytes; 0 ends a text. Multiples of 64 save traffic
layers = 4
heads = 4
width = 256
context = 256

[model.data]
type = "text"                     # tokenised when read; `folkmoot data prepare` for more
paths = ["corpus.txt"]

[model.lr]
type = "cosine"
base_lr = 0.01
warmup_steps = 20
total_steps = 500

[model.method]
type = "distro"
k = 32                            # coefficients sent of each 4,096 parameters
weigh_alignment = true            # results that agree less with the others count less
"""


def init(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("run.toml"),
    authority: Annotated[
        str, typer.Option(help="Who will keep the run's state: server, store or solana.")
    ] = "server",
) -> None:
    """Write a commented run.toml."""

    if authority not in ("server", "store", "solana"):
        raise ValueError(f"--authority {authority}: it is server, store or solana")
    if file.exists():
        raise FileExistsError(f"{file} exists; name another file, or remove it")
    file.write_bytes((_for_solana() if authority == "solana" else TEMPLATE).encode())
    there = f" --authority {authority}" if authority != "server" else ""
    typer.echo(f"wrote {file}: set run_id and [model.data], then `folkmoot up {file}{there}`")


def _for_solana() -> str:
    """The template without what the program leaves out."""
    from folkmoot.authority.solana.subset import LEFT_OUT

    lines = TEMPLATE.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition(" ")[0] not in LEFT_OUT)
