"""The options with which a command reaches a server that uses TLS."""

from pathlib import Path
from typing import Annotated, Any

import typer

Ca = Annotated[Path | None, typer.Option(help="CA (PEM) of the server's certificate, to use TLS.")]
Cert = Annotated[
    Path | None, typer.Option(help="Our certificate (PEM), when the server asks for one.")
]
Key = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]


def client_tls(ca: Path | None, cert: Path | None, key: Path | None) -> Any:
    """What `ServerAuthority` takes, or None for a plain connection."""
    from folkmoot.authority.server.client import Tls

    if (cert is None) != (key is None):
        raise ValueError("--tls-cert and --tls-key go together")
    if cert is not None and ca is None:
        raise ValueError("a certificate of ours needs --tls-ca, the CA of the server's")
    return Tls(ca, cert, key) if ca else None
