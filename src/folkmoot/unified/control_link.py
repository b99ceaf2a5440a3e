"""An actor's line to its master: made again whenever it breaks, while the actor works on.

Orders are taken in the I/O thread, one after the other; a master of an older epoch than one that
was obeyed is refused, and cut off.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from folkmoot.host.clock import backoff
from folkmoot.unified.control import MASTER, OBEY, TELL, Beat, Order, Status, decode_order, encode
from folkmoot.unified.rpc.call import Call
from folkmoot.unified.rpc.connect import connect
from folkmoot.unified.rpc.connection import RpcConnection, RpcPeer
from folkmoot.unified.rpc.errors import RpcError
from folkmoot.unified.rpc.execution import Execution
from folkmoot.unified.rpc.methods import RemoteMethods

logger = logging.getLogger(__name__)
# Seconds between two tries to reach a master that is away: at first, and at most.
SOONEST, LATEST = 0.02, 0.5
# Beats without an answer after which another connection is tried. Fewer, and a master that is only
# slow would lose the lines it listens to; more, and it would miss us before the new one stands.
UNANSWERED = 2


class ControlLink:
    """`obey` is called in the I/O thread and must not wait; `lost` when no master can be found."""

    def __init__(
        self,
        me: RpcPeer,
        secret: bytes,
        where: Callable[[], str],
        obey: Callable[[Order], None],
        lost: Callable[[], None],
        alone: float,
    ) -> None:
        self._me, self._secret, self._where = me, secret, where
        self._obey, self._lost, self._alone = obey, lost, alone
        methods = RemoteMethods(me.name)
        methods.export(OBEY, self._take, inline=True)
        self._execution = Execution(methods)
        self._epoch = 0
        self._status: Status | None = None
        self._connection: RpcConnection | None = None
        self._at = ""  # where the connection leads
        self._beats: list[Call[Any]] = []  # sent on this connection, without an answer so far
        self._broken, self._closed = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def open(self) -> None:
        threading.Thread(target=self._keep, name="control", daemon=True).start()

    def tell(self, status: Status) -> None:
        with self._lock:
            self._status = status
            if self._connection:
                self._connection.call(TELL, encode(status))

    def beat(self, beat: Beat) -> None:
        """A master that has not answered the last few by now hangs: perhaps there is another.

        So there is if the address leads elsewhere now, whatever the old one still answers.
        """
        with self._lock:
            if not self._connection:
                return
            self._beats = [call for call in self._beats if not call.done()]
            if _resolved(self._where()) != self._at:
                self._connection.close("is not the master any more")
            elif len(self._beats) >= UNANSWERED:
                self._connection.close("does not answer")
            else:
                self._beats.append(self._connection.call(TELL, encode(beat)))

    def close(self) -> None:
        self._closed.set()
        self._broken.set()
        with self._lock:
            if self._connection:
                self._connection.close()

    def _keep(self) -> None:
        since, delays = time.monotonic(), backoff(SOONEST, LATEST)
        while not self._closed.is_set():
            if self._reach():
                self._broken.wait()
                since, delays = time.monotonic(), backoff(SOONEST, LATEST)
            elif time.monotonic() - since > self._alone:
                self._lost()
                return
            else:
                self._closed.wait(next(delays))

    def _reach(self) -> bool:
        if not (address := self._where()):
            return False
        self._broken.clear()
        at = _resolved(address)
        try:
            connection = connect(
                address,
                self._me,
                self._secret,
                expect=MASTER,
                execution=self._execution,
                on_closed=lambda _: self._break(),
            )
        except RpcError as error:
            logger.debug("no master: %s", error)
            return False
        with self._lock:
            self._connection, self._at, self._beats = connection, at, []
            if self._status:
                connection.call(TELL, encode(self._status))
        return True

    def _break(self) -> None:
        with self._lock:
            self._connection = None
        self._broken.set()

    def _take(self, order: bytes) -> None:
        taken = decode_order(order)
        if taken.epoch < self._epoch:
            connection = self._connection
            if connection:
                connection.close("gave orders of an epoch that is over")
            raise PermissionError(f"epoch {taken.epoch} is over: {self._epoch} was obeyed")
        self._epoch = taken.epoch
        self._obey(taken)


def _resolved(address: str) -> str:
    """A master has a socket of its own; where the current one is, a link says."""
    kind, _, path = address.partition(":")
    return os.path.realpath(path) if kind == "unix" else address
