"""Commands under one word: `folkmoot job run`, `folkmoot job status`."""

from collections.abc import Callable
from typing import Any

import typer


def add_group(
    app: typer.Typer, name: str, about: str, *commands: Callable[..., Any]
) -> typer.Typer:
    group = typer.Typer(help=about, no_args_is_help=True)
    group.callback()(lambda: None)  # a group of one command is still a group
    for command in commands:
        group.command()(command)
    app.add_typer(group, name=name)
    return group
