"""The `folkmoot` command: one file a command, each listed here by name.

A file has the function that it is named after, or `register` for a group of commands.

A command's module imports what it needs inside its function, so that `folkmoot --help`
and the light commands start at once and work without the optional extras.
"""

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from folkmoot import __version__
from folkmoot.cli.help_text import tidy_help
from folkmoot.core.user_error import UserError

COMMANDS = (
    "init",
    "up",
    "serve",
    "create",
    "join",
    "key",
    "certificates",
    "control",
    "update",
    "federate",
    "data",
    "generate",
    "simulate",
    "store",
    "solana",
    "elastic",
    "job",
)


class Commands(TyperGroup):
    """Errors that a user can act on end a command with one sentence, not with a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (UserError, OSError, ValueError, ImportError) as error:
            typer.echo(f"folkmoot: {error}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="folkmoot",
    cls=Commands,
    help="Train one model together on machines nobody fully controls.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        typer.echo(f"folkmoot {__version__}")
        raise typer.Exit()


def all_commands() -> typer.Typer:
    """The app, with every command's module registered."""
    if not app.registered_commands:
        for name in COMMANDS:
            module = import_module(f"folkmoot.cli.{name}")
            if register := getattr(module, "register", None):
                register(app)
            else:
                app.command()(getattr(module, name))
        tidy_help(app)
    return app


def main() -> None:
    all_commands()()
