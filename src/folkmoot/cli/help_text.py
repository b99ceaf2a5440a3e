"""What `--help` prints is what the docstrings say.

Typer keeps the line breaks of the source, which are not those of the terminal, and takes what is in
square brackets (`folkmoot[train]`) for the name of a colour.
"""

from inspect import cleandoc

import typer
from rich.markup import escape


def tidy_help(app: typer.Typer) -> None:
    """Have the help of every command, and of those in groups, printed as it was meant."""
    for command in app.registered_commands:
        command.help = help_text(command.help or command.callback.__doc__ or "")
    for group in app.registered_groups:
        if group.typer_instance is not None:
            tidy_help(group.typer_instance)


def help_text(said: str) -> str:
    """Paragraphs of one line each; those that are indented, as examples are, stay as they are."""
    paragraphs = cleandoc(said).split("\n\n")
    lines = (p if p.startswith("    ") else p.replace("\n", " ") for p in paragraphs)
    return escape("\n\n".join(lines))
