"""Errors a user can act on end a command with one sentence, not a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def user_errors(*expected: type[Exception]) -> Iterator[None]:
    """Turn these errors into a message on stderr and exit code 1."""
    try:
        yield
    except expected as error:
        typer.echo(f"folkmoot: {error}", err=True)
        raise typer.Exit(1) from None
