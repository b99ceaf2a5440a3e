"""The options with which a command reaches a server that uses TLS."""

from pathlib import Path
from typing import Annotated

import typer

Ca = Annotated[Path | None, typer.Option(help="CA (PEM) of the server's certificate, to use TLS.")]
Cert = Annotated[
    Path | None, typer.Option(help="Our certificate (PEM), when the server asks for one.")
]
Key = Annotated[Path | None, typer.Option(help="Its private key (PEM).")]
