"""`folkmoot data`: make a token file of text files; the fingerprint of a run's data."""

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.group import add_group
from folkmoot.cli.progress import progress_bar
from folkmoot.cli.serve import RunFile


def register(app: typer.Typer) -> None:
    add_group(app, "data", "Prepare data for training.", prepare, fingerprint)


def prepare(
    files: Annotated[list[Path], typer.Argument(help="Text files, or folders of them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The token file to make.")],
    tokenizer: Annotated[
        str, typer.Option(help="bytes, bpe:SIZE (trained on these files), or a tokenizer.json.")
    ] = "bytes",
    pattern: Annotated[str, typer.Option(help="Which files of a folder to take.")] = "*",
) -> None:
    """Tokenise FILES into one token file. Run it again after a kill: it continues."""
    from folkmoot.learning.data.prepare import Preparation, Prepared
    from folkmoot.learning.data.prepare import prepare as steps

    inputs = expand(files, pattern)
    total = sum(path.stat().st_size for path in inputs if path.is_file())
    with progress_bar("preparing", total) as advance:
        for step in steps(inputs, tokenizer, out):
            if isinstance(step, Preparation):
                advance(step.consumed)
    assert isinstance(step, Prepared)
    typer.echo(
        f"{out}: {step.tokens:,} tokens ({step.dtype}, vocabulary {step.vocab_size:,}) of"
        f" {step.files} files; tokenizer in {out.with_name(step.tokenizer)}"
    )


def fingerprint(file: RunFile) -> None:
    """Print the fingerprint of a run's data and tokenizer, to put into its file under [model]."""
    from folkmoot.exchange.bucket import open_object
    from folkmoot.learning.data.fingerprint import fingerprints, written
    from folkmoot.runs.config import load_run

    found = fingerprints(load_run(file).model, open_object)
    typer.echo(f'fingerprint = "{written(found)}"')


def expand(files: list[Path], pattern: str) -> list[Path]:
    """Folders become the files in them, in the order of their names on any machine."""
    found: list[Path] = []
    for path in files:
        inside = (p for p in path.rglob(pattern) if p.is_file()) if path.is_dir() else [path]
        found += sorted(inside, key=lambda p: p.as_posix())
    return found
