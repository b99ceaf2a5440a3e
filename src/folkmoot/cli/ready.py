"""A process that was started by another tells it when it is ready, and where it is."""

import os
from typing import Annotated

import typer

ReadyFd = Annotated[
    int | None,
    typer.Option(hidden=True, help="Write where it is to this descriptor when it is ready."),
]


def tell_ready(descriptor: int | None, where: str) -> None:
    if descriptor is not None:
        os.write(descriptor, where.encode())
        os.close(descriptor)
