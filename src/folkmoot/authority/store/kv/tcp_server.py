"""The server of a torch TCPStore, for a process of its own."""

import socket
from typing import Any


def listen(host: str, port: int) -> tuple[Any, str]:
    """A server that lives as long as the object, and its url; of port 0 a free one is taken.

    The socket is ours: torch's own listens at every address of the machine, and to whoever reaches
    it a TCPStore gives everything. OSError says why we cannot listen there.
    """
    shown = f"[{host}]" if ":" in host else host
    try:
        ours, everywhere = _bound(host, port)
    except OSError as error:
        raise OSError(
            f"cannot listen at {shown}:{port}: {error.strerror or error}; "
            "give another --port (0 for a free one), or a --host of this machine"
        ) from None
    with ours:
        # After what may be wrong: it takes seconds.
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        at = ours.getsockname()[1]
        store = TCPStore(
            "localhost" if everywhere else host,
            at,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=ours.detach(),  # torch closes it
        )
    return store, f"tcp://{shown}:{at}"


def _bound(host: str, port: int) -> tuple[socket.socket, bool]:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    ours = socket.socket(family, kind)
    try:
        # A server that is started again must not wait for the connections of the one before.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        ours.bind(address)
    except OSError:
        ours.close()
        raise
    return ours, address[0] in ("0.0.0.0", "::")
