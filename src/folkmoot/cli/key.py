"""`folkmoot key`, `folkmoot federate key`: make a key, and say its public half."""

from pathlib import Path
from typing import Annotated

import typer


def key(
    file: Annotated[Path, typer.Argument(help="The key file; made when it is not there.")],
) -> None:
    """Print the public half of a key, for an allow-list."""
    from folkmoot.host.signing import Identity

    typer.echo(Identity.load(file).public.hex())
