"""Data-parallel training in PyTorch whose ranks may die at any instruction, and come back.

    with ElasticTraining(model=model, optimizer=optimizer) as training:
        for attempt in training.steps(1000):
            with attempt as step:
                ...                          # torch.distributed works among the live ranks
                optimizer.step()

Each attempt is one global iteration. When its members are others than before, torch's default
process group is formed anew among them, and ranks that are behind take model, optimizer and step
from one that is not. When a member dies in a collective, the attempt ends without an error and the
step is tried again by those who are left.

What must hold for that: an attempt changes the state only after its last collective, as a loop that
ends in `optimizer.step()` does. Then a rank has either done the whole step or nothing of it, and
one that did it passes it on to those that did not.
"""

import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from folkmoot.authority.store.kv.open import parse_url
from folkmoot.authority.store.kv.tcp_server import listen
from folkmoot.core.iteration import Record, keys
from folkmoot.core.iteration.messages import Add, GetMany, Set, Wait
from folkmoot.core.iteration.record import read_arrival, read_record
from folkmoot.elastic.address import own_address
from folkmoot.elastic.global_iteration import GlobalIteration
from folkmoot.elastic.process_group import ProcessGroup, is_lost_member
from folkmoot.elastic.state_stream import BadState, StateServer, fetch_state, read_announcement

logger = logging.getLogger(__name__)
# Seconds that one collective may take, and that forming the process group may.
TIMEOUT, FORMING = 300.0, 30.0
# How often a step is tried by the same members before its error is taken for the script's own.
TRIES = 5
# Milliseconds between two looks whether those we wait for are still there.
LOOK = 250


class Stateful(Protocol):
    """What a model, an optimizer or a scheduler is to us."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any, /) -> Any: ...


class MemberLost(Exception):
    """A member of this iteration is gone; the next one begins without it."""


class ElasticTraining:
    """One rank's part in a training. `state` is everything that a rank needs to take over."""

    def __init__(
        self,
        iteration: GlobalIteration | None = None,
        *,
        timeout: float = TIMEOUT,
        **state: Stateful,
    ) -> None:
        if not state:
            raise ValueError("name what is trained: ElasticTraining(model=…, optimizer=…)")
        self.iteration = iteration or GlobalIteration()
        self._state, self._timeout = state, timeout
        self._used: Record | None = None  # the newest iteration in which the group was used
        self._group: ProcessGroup | None = None
        self._meeting: Any = None  # the TCPStore where the group's members meet, if it is ours
        self._server: StateServer | None = None
        self._keys: list[str] = []  # that we made in the store, to be deleted
        self._failed: tuple[tuple[int, ...], int, int] = ((), 0, 0)  # members, step, how often

    def __enter__(self) -> Self:
        self.iteration.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self._dissolve_group()
        self.iteration.__exit__(kind, *raised)

    @property
    def step(self) -> int:
        """How many steps are in the state."""
        return self.iteration.progress

    @property
    def index(self) -> int:
        """Which of the members this rank is, from 0: torch.distributed's rank."""
        return self.iteration.members.index(self.iteration.rank)

    @property
    def size(self) -> int:
        return len(self.iteration.members)

    def steps(self, total: int) -> Iterator["Attempt"]:
        """Attempts at the next step, until `total` steps are in the state of every member."""
        while self.iteration.advance():
            try:
                self._prepare(self.iteration.record, total)
            except MemberLost as lost:
                self._fail(lost)
                continue
            if self.step >= total:
                self.iteration.finish()
                return
            attempt = Attempt(self)
            yield attempt
            if not attempt.begun:
                raise RuntimeError("an attempt was not begun: write `with attempt as step:`")
        if self.step < total:
            logger.warning(
                "rank %d: the others have finished without this rank, which has %d of %d steps",
                *(self.iteration.rank, self.step, total),
            )

    def shards(self, count: int) -> list[int]:
        """Which of `count` shards of a batch this rank computes."""
        if count < self.size:
            raise ValueError(f"{count} shards are too few for {self.size} ranks: each needs one")
        return list(range(self.index, count, self.size))

    def sum_in_order(self, mine: Mapping[int, Tensor], count: int) -> Tensor:
        """The sum of all shards' tensors, bit for bit the same whoever computed them."""
        own = [mine[shard] for shard in self.shards(count)]
        own += [torch.zeros_like(own[0])] * (-(-count // self.size) - len(own))
        block = torch.stack(own)
        blocks = [torch.empty_like(block) for _ in range(self.size)]
        dist.all_gather(blocks, block)
        total = torch.zeros_like(own[0])
        for shard in range(count):
            total += blocks[shard % self.size][shard // self.size]
        return total

    # An iteration's beginning: the state, then the group.

    def _prepare(self, record: Record, total: int) -> None:
        if not self._can_be_used_again(record):
            self._dissolve()
            self._even_out(record)
            self._meet(record)
            if self.step < total:
                self._form(record)
        self._used = record

    def _can_be_used_again(self, record: Record) -> bool:
        """By what all members know, so that they decide alike: the last attempt was all well."""
        used = self._used
        return (
            self._group is not None
            and used is not None
            and record.iteration == used.iteration + 1
            and record.members == used.members
            and not record.behind
            and record.progress > used.progress
        )

    def _even_out(self, record: Record) -> None:
        """Those who are behind take the state of one who is not."""
        behind = _behind(record)
        sources = [rank for rank in record.ranks if rank not in behind][: len(behind)]
        if self.iteration.rank in sources:
            self._serve(record)
        if self.iteration.rank in behind:
            first = behind.index(self.iteration.rank) % len(sources)
            self._take_state(record, [*sources[first:], *sources[:first]])

    def _serve(self, record: Record) -> None:
        state = {name: part.state_dict() for name, part in self._state.items()}
        self._server = StateServer(state, self._address())
        announcement = msgspec.json.encode(self._server.announcement)
        self._put(_state_key(record, self.iteration.rank), announcement)

    def _take_state(self, record: Record, sources: list[int]) -> None:
        for source in sources:
            try:
                said = self._await(_state_key(record, source), record)
                state = fetch_state(read_announcement(said))
            except (OSError, BadState) as error:
                logger.warning("no state from rank %d: %s", source, error)
                continue
            if state.keys() != self._state.keys():
                raise ValueError(
                    f"rank {source} trains {sorted(state)}, this rank {sorted(self._state)}: run"
                    " the same script everywhere"
                )
            for name, part in self._state.items():
                part.load_state_dict(state[name])
            self.iteration.progress = record.progress
            return
        raise MemberLost("nobody who is ahead could be reached")

    def _meet(self, record: Record) -> None:
        """Until every member is there; the first of them opens the place where the group meets."""
        number = record.iteration
        if self.index == 0:
            self._meeting, url = listen(self._address(), 0)
            self._put(f"group_{number}_at", url.encode())
            self._keys += [f"group_{number}_count", f"group_{number}_complete"]
        (count,) = self.iteration.ask(Add(f"group_{number}_count", 1))
        if int(count or 0) >= self.size:
            self.iteration.ask(Set(f"group_{number}_complete", b"yes"))
        self._await(f"group_{number}_complete", record)

    def _form(self, record: Record) -> None:
        try:
            store = self._meeting or self._join(record)
            self._group = ProcessGroup(store, self.index, self.size, FORMING, self._timeout)
        except RuntimeError as error:
            raise MemberLost(f"the process group could not be formed: {error}") from error
        self.iteration.on_look(self._cut_if_lost)

    def _join(self, record: Record) -> Any:
        url = self._await(f"group_{record.iteration}_at", record).decode()
        host, port = parse_url(url).addresses[0]
        wait = timedelta(seconds=FORMING)
        return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=wait)

    def _await(self, key: str, record: Record) -> bytes:
        """The key's value; `MemberLost` as soon as somebody who could write it has gone on."""
        ranks = record.ranks
        while True:
            (value,) = self.iteration.ask(Wait(key, LOOK))
            if value is not None:
                return value
            arrivals = map(keys.last_iteration, ranks)
            found = self.iteration.ask(GetMany((key, keys.CONSENSUS, *arrivals)))
            if found[0] is not None:
                return found[0]
            if lost := self.iteration.lost():
                raise MemberLost(f"rank {lost[0]} is gone")
            newest = read_record(found[1], self.iteration.world)
            done = [a for value in found[2:] if (a := read_arrival(value))]
            if newest != record or any(a.iteration >= record.iteration for a in done):
                raise MemberLost("others have gone on")

    # Its end.

    def _cut_if_lost(self) -> None:
        group = self._group
        if group is not None and self.iteration.lost():
            group.cut()

    def _fail(self, error: BaseException) -> None:
        """The attempt counts for nothing; the next iteration is with those who are left."""
        logger.warning(
            "rank %d: step %d is tried again with the ranks that are left: %s",
            *(self.iteration.rank, self.step, str(error).partition(". ")[0]),
        )
        self._dissolve_group()

    def _is_tried_enough(self) -> bool:
        members, step, times = self._failed
        same = (members, step) == (self.iteration.members, self.step)
        self._failed = (self.iteration.members, self.step, times + 1 if same else 1)
        return self._failed[2] >= TRIES

    def _dissolve(self) -> None:
        """Also forget what was put into the store: all members of that iteration have left it."""
        self._dissolve_group()
        for key in self._keys:
            self.iteration.store.delete(key)
        self._keys.clear()

    def _dissolve_group(self) -> None:
        group, self._group, self._used = self._group, None, None
        if group is not None:
            group.dissolve()
        if self._server is not None:
            self._server.close()
        self._server = self._meeting = None

    def _put(self, key: str, value: bytes) -> None:
        self._keys.append(key)
        self.iteration.ask(Set(key, value))

    def _address(self) -> str:
        given = self.iteration.given_store
        return own_address(given if isinstance(given, str) else "memory://")


class Attempt:
    """`with attempt as step`: the step counts if the block ends; if a member dies, nothing does."""

    def __init__(self, training: ElasticTraining) -> None:
        self._training = training
        self.begun = False

    def __enter__(self) -> int:
        self.begun = True
        return self._training.step

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        training = self._training
        if error is None:
            training.iteration.progress += 1
            return False
        if not is_lost_member(error) or training._is_tried_enough():
            return False
        training._fail(error)
        return True


def _behind(record: Record) -> list[int]:
    """Who needs another's state. Before the first step all do but one: they began at random."""
    if record.progress == 0:
        return list(record.ranks[1:])
    return [member.rank for member in record.behind]


def _state_key(record: Record, source: int) -> str:
    return f"state_{record.iteration}_{source}"
