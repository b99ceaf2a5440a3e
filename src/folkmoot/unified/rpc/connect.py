"""Make a connection: reach an address, show and check the secret, learn who is there."""

import socket
import time

from folkmoot.unified.rpc import address as addresses
from folkmoot.unified.rpc.connection import Hook, RpcConnection, RpcPeer, no_hook
from folkmoot.unified.rpc.errors import RpcError, Unauthorised, WorkerDied
from folkmoot.unified.rpc.execution import Execution
from folkmoot.unified.rpc.handshake import Seal, call_out
from folkmoot.unified.rpc.io_loop import io_loop
from folkmoot.unified.rpc.methods import RemoteMethods

CONNECT_SECONDS = 10.0


def connect(
    address: str,
    me: RpcPeer,
    secret: bytes,
    *,
    expect: str | None = None,
    execution: Execution | None = None,
    on_closed: Hook = no_hook,
) -> RpcConnection:
    """A connection to whoever listens at `address`; waits until it is made.

    `WorkerDied` when nobody is there, `Unauthorised` when it is a stranger or not `expect`.
    `execution` carries out what the other end calls back.
    """
    until = time.monotonic() + CONNECT_SECONDS
    name = expect or address
    try:
        stream = addresses.connect(address, CONNECT_SECONDS)
    except OSError as error:
        raise WorkerDied(name, f"cannot be reached at {address}: {error}") from None
    served = execution or Execution(RemoteMethods(me.name))
    try:
        stream.settimeout(max(0.001, until - time.monotonic()))
        keys = call_out(stream, secret)
        seals = (Seal(keys.caller), Seal(keys.listener))
        sealed = None if stream.family == socket.AF_UNIX else seals
        connection = RpcConnection(io_loop(), stream, me, sealed, served, on_closed=on_closed)
    except OSError as error:
        stream.close()
        raise WorkerDied(name, f"did not answer at {address}: {error}") from None
    except BaseException:
        stream.close()
        raise
    io_loop().soon(connection.begin)
    return _known(connection, name, expect, until)


def _known(connection: RpcConnection, name: str, expect: str | None, until: float) -> RpcConnection:
    try:
        peer = connection.opened.result(max(0.001, until - time.monotonic()))
    except (TimeoutError, RpcError) as error:
        connection.close()
        raise WorkerDied(name, f"did not say who it is: {error or 'too slow'}") from None
    if expect is not None and peer.name != expect:
        connection.close()
        raise Unauthorised(f"{peer} answers where {expect} was")
    return connection
