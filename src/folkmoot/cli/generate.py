"""`folkmoot generate`: let a checkpoint write on from a prompt."""

import logging
import tempfile
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(generate)


def generate(
    checkpoint: Annotated[
        str, typer.Argument(help="A model folder, or a folder or bucket URL of checkpoints.")
    ],
    prompt: Annotated[str, typer.Argument(help="What the text begins with.")],
    tokens: Annotated[int, typer.Option("--tokens", "-n", min=1, help="How many to write.")] = 200,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest.")] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Only the k likeliest; 0 is all.")] = 0,
    seed: Annotated[int, typer.Option(help="The same seed writes the same text.")] = 0,
) -> None:
    """Write text that goes on from PROMPT, using the newest good checkpoint."""
    from folkmoot.exchange.bucket import BucketError
    from folkmoot.learning import generate as writing
    from folkmoot.learning.checkpoints.load import load_model, load_tokenizer

    logging.basicConfig(format="folkmoot generate: %(message)s")
    try:
        with tempfile.TemporaryDirectory(prefix="folkmoot-") as scratch:
            folder = find(checkpoint, Path(scratch))
            model, using = load_model(folder).eval(), load_tokenizer(folder)
        typer.echo(prompt, nl=False)
        stream = writing.tokens(
            model,
            using.encode(prompt),
            tokens,
            temperature=temperature,
            top_k=top_k,
            seed=seed,
        )
        for piece in writing.text(using, stream):
            typer.echo(piece, nl=False)
        typer.echo()
    except (ValueError, OSError, BucketError) as error:
        typer.echo(f"folkmoot generate: {error}", err=True)
        raise typer.Exit(1) from error


def find(checkpoint: str, scratch: Path) -> Path:
    """The folder of a model: the one named, or the newest checkpoint in the store named."""
    from folkmoot.exchange.bucket import Bucket
    from folkmoot.learning.checkpoints.fetch import latest

    folder = Path(checkpoint)
    if "://" not in checkpoint:
        if not folder.is_dir():
            raise ValueError(f"{checkpoint}: there is no such folder")
        if (folder / "config.json").is_file():
            return folder
    return latest(Bucket(checkpoint), scratch)
