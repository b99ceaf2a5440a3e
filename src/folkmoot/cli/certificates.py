"""`folkmoot tls`: certificates for people who know each other, with one command."""

from pathlib import Path
from typing import Annotated

import typer

from folkmoot.cli.group import add_group


def register(app: typer.Typer) -> None:
    add_group(app, "tls", "Make certificates for TLS.", make)


def make(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help="Names and addresses by which others reach the server."),
    ] = None,
    folder: Annotated[Path, typer.Option("--out", "-o", help="Where the files go.")] = Path("tls"),
    client: Annotated[
        list[str] | None,
        typer.Option("--client", "-c", help="Also a certificate for this client; repeat."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long they are good.")] = 365,
) -> None:
    """Make an authority (once), a server's certificate for HOSTS, and clients' certificates.

    Give ca.pem to everybody; keep ca.key to yourself.
    """
    from folkmoot.host.certificates import load_authority, make_certificate

    if not hosts and not client:
        raise ValueError("say for whom: hosts of the server, or --client NAME")
    authority = load_authority(folder, days)
    wanted = [("server", hosts)] if hosts else []
    for name, names in [*wanted, *((one, []) for one in client or [])]:
        files = make_certificate(authority, folder, name, names, days)
        typer.echo(f"made {files.cert} and {files.key}")
    typer.echo(f"everybody needs {folder / 'ca.pem'}; keep {folder / 'ca.key'} to yourself")
