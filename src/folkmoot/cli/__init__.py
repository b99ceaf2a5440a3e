"""The `folkmoot` command: one file a command, each listed here by name.

A command's module imports what it needs inside its function, so that `folkmoot --help`
and the light commands start at once and work without the optional extras.
"""

from importlib import import_module

import typer

from folkmoot import __version__

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

app = typer.Typer(
    name="folkmoot",
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


def main() -> None:
    """Register every command's module, then run."""
    for name in COMMANDS:
        import_module(f"folkmoot.cli.{name}").register(app)
    app()
