"""ElasticMaster: the sub-master of an elastic role.

It keeps nothing that its workers could not tell it again: when it dies, its successor asks them.
"""

import logging
from collections.abc import Sequence
from typing import Any

from folkmoot.authority.store.kv.tcp_server import listen
from folkmoot.unified.backends.elastic import rounds
from folkmoot.unified.backends.elastic.meeting import Meeting
from folkmoot.unified.backends.elastic.rounds import CheckOutcome, Groups
from folkmoot.unified.backends.elastic.worker import CHECK, HOLD_STORE, INTRODUCE, CheckOrder
from folkmoot.unified.rpc.call import Call
from folkmoot.unified.rpc.errors import RemoteError, RpcError
from folkmoot.unified.rpc.methods import rpc
from folkmoot.unified.worker import SubMaster

logger = logging.getLogger(__name__)
# Seconds for a worker to answer a question that needs no work.
ANSWER = 60.0


class ElasticMaster(SubMaster):
    """Subclass it, and name it as the role's `sub_master`, for checks of one's own."""

    #: How long a whole check may take; the role's `timeouts.check`.
    check_seconds: float = 300.0

    def __init__(self, **config: Any) -> None:
        self._store: Any = None
        self._port, self._url = 0, ""
        self._checks = 0
        self._nodes: dict[int, tuple[str, ...]] = {}

    def check_child(self, world: Sequence[str]) -> dict[str, str]:
        """Two rounds of pairs, of which the second is left out where it could tell nothing."""
        found = [self._round(rounds.neighbours(world))]
        if rounds.again(found[0]):
            found.append(self._round(rounds.crossed(found[0])))
        if slow := rounds.stragglers(found):
            told = {name: round(times, 1) for name, times in slow.items()}
            logger.warning("these workers take so many times as long as the others: %s", told)
            self.progress(stragglers=told)
        return rounds.unfit(found)

    @rpc
    def meet(self, world: tuple[str, ...], generation: int) -> Meeting:
        """Where the workers of a generation find each other."""
        if generation not in self._nodes:
            asked = [self.current.worker(name, timeout=ANSWER).call(INTRODUCE) for name in world]
            self._nodes = {generation: tuple(call.result() for call in asked)}
        # Asked each time: a rank 0 that came back alone holds another store.
        first = self.current.worker(world[0], timeout=ANSWER)
        host, port = first.call(HOLD_STORE).result()
        self._listen()
        return Meeting(host=host, port=port, nodes=self._nodes[generation], store=self._url)

    def _round(self, groups: Groups) -> dict[str, CheckOutcome]:
        """Check all groups at once."""
        self._listen()
        # Two rounds, and in each time for those who wait for one that hangs to say so.
        seconds = self.check_seconds / 4
        calls: dict[str, Call[Any]] = {}
        for group in groups:
            self._checks += 1
            for index, name in enumerate(group):
                order = CheckOrder(
                    host=self.host,
                    port=self._port,
                    key=f"check/{self._checks}",
                    index=index,
                    size=len(group),
                    seconds=seconds,
                )
                worker = self.current.worker(name, timeout=1.5 * seconds)
                calls[name] = worker.call(CHECK, order)
        return {name: _result(call) for name, call in calls.items()}

    def _listen(self) -> None:
        if self._store is None:
            self._store, self._url = listen(self.host, 0)
            self._port = int(self._url.rpartition(":")[2])


def _result(call: Call[Any]) -> CheckOutcome:
    try:
        return CheckOutcome(call.result())
    except RemoteError as error:
        return CheckOutcome(why=_line(f"{error.kind}: {error.failure.message}"))
    except RpcError as error:
        return CheckOutcome(why=_line(str(error)), silent=True)


def _line(text: str) -> str:
    return text.partition("\n")[0][:300]
