"""`folkmoot store serve`: a shared store in a process of its own."""

import signal
import socket
from typing import Annotated

import typer

from folkmoot.cli.group import add_group
from folkmoot.cli.ready import ReadyFd, tell_ready
from folkmoot.host.end_signals import end_signals

# Seconds after which one is told that no store answers; it may just be starting.
STARTING = 2.0


def register(app: typer.Typer) -> None:
    add_group(app, "store", "A shared store, for runs and jobs that have no coordinator.", serve)


def serve(
    host: Annotated[
        str,
        typer.Option(help="Address to listen at; 0.0.0.0 for all. Who reaches it may do anything."),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen at; 0 takes a free one.", min=0, max=65535)
    ] = 29400,
    ready_fd: ReadyFd = None,
) -> None:
    """Serve a torch TCPStore until Ctrl-C.

    It keeps everything in memory and nothing on disk, asks nobody for a password and encrypts
    nothing: when this process ends, what runs on it has to start again. Where that matters use
    etcd (etcd://host:2379,host:2379), which keeps its state on disk and survives lost members.
    """
    from folkmoot.authority.store.kv.tcp_server import listen

    # A signal may reach any thread, also one of torch's: the wake-up comes here all the same.
    told, tell = socket.socketpair()
    tell.setblocking(False)
    signal.set_wakeup_fd(tell.fileno())
    for end in end_signals():
        signal.signal(end, lambda number, frame: None)
    try:
        store, url = listen(host, port)
    except ImportError as error:
        raise ImportError(
            f"a TCPStore is a part of torch, which is not installed ({error}): "
            "pip install 'folkmoot[train]', or use etcd"
        ) from None
    typer.echo(f"store at {url}")
    typer.echo("  it keeps nothing on disk: when it ends, what runs on it has to start again")
    tell_ready(ready_fd, url)
    told.recv(1)
    del store
    typer.echo("stopped; what it held is gone")


def tell_if_absent(url: str) -> None:
    """Say what is tried in vain, for those who would wait for it without a word."""
    from folkmoot.authority.store.kv import StoreGone
    from folkmoot.authority.store.kv.open import PATIENCE, open_store

    try:
        open_store(url, patience=STARTING).close()
    except StoreGone as gone:
        typer.echo(f"folkmoot: {gone}; tries again for {PATIENCE:g} s", err=True)
