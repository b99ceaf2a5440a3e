"""gRPC as every shell uses it: servers that listen or say why not, channels with or without TLS."""

from collections.abc import Sequence

import grpc
import grpc.aio

from folkmoot.host.tls import ClientTls, ServerTls

Options = Sequence[tuple[str, int]]
MOST_WAITING = 65_536
LONGEST_WAITING = 600  # seconds
SERVER_OPTIONS: Options = [
    # A second server on the same port must fail, not take every other request.
    ("grpc.so_reuseport", 0),
    # Thousands come back at once after a restart of the server; by default gRPC cancels some of a
    # thousand requests that wait.
    ("grpc.server.max_pending_requests", MOST_WAITING),
    ("grpc.server.max_pending_requests_hard_limit", MOST_WAITING),
    # By default it also cancels those that a busy machine left waiting for half a minute. How long
    # an answer may take is for who asked to say.
    ("grpc.server_max_unrequested_time_in_server", LONGEST_WAITING),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


def new_server(options: Options) -> grpc.aio.Server:
    return grpc.aio.server(options=[*SERVER_OPTIONS, *options])


def listen(server: grpc.aio.Server, address: str, tls: ServerTls | None) -> int:
    """The port at which it listens (of host:0 a free one); OSError says why it cannot."""
    try:
        if tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, tls.credentials()))
    except RuntimeError:
        why = "the address is taken or not of this machine"
        if tls is not None:
            why += f", or {tls.cert} and {tls.key} are not a certificate and its key in PEM"
        raise OSError(f"cannot listen at {address}: {why}") from None


def open_channel(address: str, tls: ClientTls | None, options: Options) -> grpc.aio.Channel:
    if tls is None:
        return grpc.aio.insecure_channel(address, options)
    return grpc.aio.secure_channel(address, tls.credentials(), options)
