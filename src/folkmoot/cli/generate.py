"""`folkmoot generate`: let a checkpoint write on from a prompt."""

import logging
from typing import Annotated

import typer


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
    from folkmoot.runs.trained_model import load_checkpoint

    logging.basicConfig(format="folkmoot: %(message)s")
    model = load_checkpoint(checkpoint)
    text = model.generate(prompt, tokens, temperature=temperature, top_k=top_k, seed=seed)
    typer.echo(prompt, nl=False)
    for piece in text:
        typer.echo(piece, nl=False)
    typer.echo()
