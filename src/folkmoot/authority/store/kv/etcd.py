"""etcd: a store of several members that keeps what it said on disk, and survives the loss of some.

An answer may get lost with the member that gave it. Then a read is repeated, and a write is first
*settled*: every write of a connection puts its number, in the same transaction, into a key that is
this connection's own, on the condition that the number there is lower. So it can be asked whether
the write happened, and made certain that it never will if it did not; only then is it tried
again. Every write happens once, also `add`, also when a member that hung delivers an old request.

Each write is a revision, of which etcd keeps all until they are compacted: run it with
`--auto-compaction-retention=10m` or the like. The key of a connection, some 60 bytes, goes when it
is closed; that of a process that was killed stays.
"""

import contextlib
import random
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

from folkmoot.authority.store.kv import StoreError, Wakeup, in_steps
from folkmoot.authority.store.kv import etcd_requests as ask
from folkmoot.authority.store.kv.etcd_cluster import MESSAGES, Cluster, Unanswered
from folkmoot.authority.store.kv.etcd_watch import EtcdWatch
from folkmoot.authority.store.kv.limits import check_key, check_value
from folkmoot.host.clock import backoff

# The most keys asked for at once.
BATCH = 100
# With what is expected and what is desired, a request would exceed etcd's 1.5 MiB.
LONG = 256 * 1024
# Up to so many seconds are slept through: to watch for a key takes as long as six reads.
BRIEF = 0.02
# For how many others a colliding `add` allows, so that a hundred who add at once need few attempts.
GUESSES = 32
# The same for `add_and_create`, where each needs a value of its own, and who knew what is there.
FEW = 3
DONE, VOID = b"done", b"void"


class EtcdStore:
    """One connection to a cluster; its own key is `own` and something unique."""

    def __init__(self, cluster: Cluster, own: str, patience: float) -> None:
        self._cluster, self._own_prefix = cluster, own
        self._own = f"{own}{uuid.uuid4().hex}".encode()
        self._written = 0  # the number of our last write; 0: our key is not there yet
        self._sums: dict[str, bytes] = {}  # what each counter was when we added to it last
        self._busy = threading.Lock()
        self._find(self._own, time.monotonic() + patience)

    def get(self, key: str) -> bytes | None:
        return self._find(check_key(key), self._deadline())[0]

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        names = [check_key(key) for key in keys]
        for at in range(0, len(names), BATCH):
            # Not one transaction: etcd before 3.5.5 panics, all of it, when the client of one that
            # only reads is killed (its issue 14110).
            requests = [ask.range_request(name) for name in names[at : at + BATCH]]
            answers = self._cluster.ask_together("Range", requests, self._deadline())
            found += [ask.found(answer)[0] for answer in answers]
        return found

    def set(self, key: str, value: bytes) -> None:
        check_value(key, value)
        name = check_key(key)
        self._write(name, [], [ask.put(name, value)], self._deadline())

    def add(self, key: str, amount: int) -> int:
        name, deadline = check_key(key), self._deadline()
        value = self._sums.pop(key, None)
        if value is None:
            value, _ = self._find(name, deadline)
        while True:
            # Others add at the same time: allow for many of them.
            steps = list(islice(ask.sums(key, value, amount), GUESSES))
            change = partial(ask.add_any, name, self._own, steps)
            note, answer = self._once(name, [], change, deadline)
            if note is None:
                note, value = ask.added(answer.responses[0].response_txn, steps)
            if note is not None:
                self._sums[key] = note
                return int(note)
            self._check_time(key, deadline)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        check_value(key, desired)
        name, deadline = check_key(key), self._deadline()
        if len(expected) > LONG:
            return self._compare_set_long(name, expected, desired, deadline)
        condition = ask.value_is(name, expected)
        happened, now = self._write(name, [condition], [ask.put(name, desired)], deadline)
        return desired if happened else now[0]

    def compare_set_then_set(
        self, key: str, expected: bytes, desired: bytes, others: Sequence[str], value: bytes
    ) -> bytes | None:
        if len(expected) > LONG:
            return in_steps.compare_set_then_set(self, key, expected, desired, others, value)
        check_value(key, desired)
        name = check_key(key)
        puts = [ask.put(name, desired), *(ask.put(check_key(other), value) for other in others)]
        happened, now = self._write(name, [ask.value_is(name, expected)], puts, self._deadline())
        if happened:
            return desired
        if now[0] == desired:
            in_steps.set_all(self, others, value)
        return now[0]

    def compare_set_and_append(
        self,
        key: str,
        expected: bytes,
        desired: bytes,
        list_key: str,
        note: bytes,
        wakeup: Wakeup | None = None,
    ) -> tuple[bytes | None, ...]:
        """Each connection has a key on the list, so that those who come at once do not collide."""
        check_value(list_key, note)
        name = check_key(list_key)
        whole = ask.range_request(*ask.list_range(name))
        mine = ask.put(ask.note_key(name, self._own), note)
        behind = [mine, MESSAGES["RequestOp"](request_range=whole)]
        found, answer = self._compare_set_and(key, expected, desired, behind)
        if answer is None:
            pieces = self._cluster.ask("Range", whole, self._deadline())
        else:
            pieces = answer.responses[2].response_range
        notes = b"".join(bytes(kv.value) for kv in pieces.kvs)
        return in_steps.appended(self, found, desired, notes, wakeup)

    def _compare_set_and(
        self, key: str, expected: bytes, desired: bytes, behind: list[Any]
    ) -> tuple[bytes | None, Any]:
        """`compare_set` and what is behind it, as one transaction; None if its answer is lost."""
        check_value(key, desired)
        name, deadline = check_key(key), self._deadline()
        if len(expected) > LONG:
            found = self._compare_set_long(name, expected, desired, deadline)
            self._write(name, [], behind, deadline)
            return found, None
        condition = ask.value_is(name, expected)
        compared = ask.txn([condition], [ask.put(name, desired)], [ask.range_op(name)])
        first = MESSAGES["RequestOp"](request_txn=compared)
        note, answer = self._once(
            name, [], lambda done: [first, *behind, ask.put(self._own, done)], deadline
        )
        if note is not None:
            return self._find(name, deadline)[0], None
        outcome = answer.responses[0].response_txn
        if outcome.succeeded:
            return desired, answer
        return ask.found(outcome.responses[0].response_range)[0], answer

    def move(self, key: str, expected: bytes, desired: bytes, before: str, after: str) -> bool:
        if 2 * len(expected) + 2 * len(desired) > LONG:  # too much for one request
            return in_steps.move(self, key, expected, desired, before, after)
        check_value(key, desired)
        name = check_key(key)
        changes = [ask.put(name, desired), ask.put(check_key(after), desired)]
        if before:
            changes.append(ask.put(check_key(before), expected))
        return self._write(name, [ask.value_is(name, expected)], changes, self._deadline())[0]

    def add_and_create(
        self, key: str, near: int, made: Callable[[int], tuple[str, bytes]]
    ) -> int | None:
        name, sums = check_key(key), range(near, near + FEW)
        if near < 1:
            return None
        created = [(check_key(other), value) for other, value in map(made, sums)]
        if sum(len(value) for _, value in created) > LONG:
            return None
        change = partial(ask.add_and_create_any, name, self._own, sums, created)
        note, answer = self._once(name, [], change, self._deadline())
        if note is None:
            note, _ = ask.added(
                answer.responses[0].response_txn, [(None, b"%d" % each) for each in sums]
            )
        return int(note) if note else None

    def append(self, key: str, value: bytes) -> None:
        check_value(key, value)

        def longer(before: bytes | None) -> bytes:
            after = (before or b"") + value
            check_value(key, after)
            return after

        self._update(key, longer)

    def wait(self, key: str, seconds: float, then: str = "") -> bytes | None:
        value = self._wait(key, seconds)
        return self.get(then) if then and value is not None else value

    def _wait(self, key: str, seconds: float) -> bytes | None:
        name, end = check_key(key), time.monotonic() + seconds
        for delay in backoff(0.01, 0.5):
            answer = self._cluster.ask("Range", ask.range_request(name), self._deadline())
            left = end - time.monotonic()
            if answer.kvs or left <= 0:
                return ask.found(answer)[0]
            if left <= BRIEF:
                time.sleep(left)
                continue
            try:
                value = self._await_put(name, answer.header.revision, left)
            except Unanswered as error:
                self._cluster.pause(delay, max(end, self._deadline()), error)
                continue
            if value is not None:
                return value
        raise AssertionError("back-off never ends")

    def watch(self, key: str, numbered: str) -> EtcdWatch:
        return EtcdWatch(self._cluster, check_key(key), check_key(numbered))

    def delete(self, key: str) -> bool:
        name, deadline = check_key(key), self._deadline()
        value, revision = self._find(name, deadline)
        while value is not None:
            # Under a condition, so that an answer that gets lost leaves no doubt who removed it.
            condition = ask.revision_is(name, revision)
            happened, (value, revision) = self._write(
                name, [condition], [ask.delete(name)], deadline
            )
            if happened:
                return True
        return False

    def delete_many(self, keys: Sequence[str]) -> None:
        names = [check_key(key) for key in keys]
        for at in range(0, len(names), BATCH):
            some = names[at : at + BATCH]
            changes = [ask.delete(*ask.list_range(name)) for name in some]
            self._write(some[0], [], changes, self._deadline())

    def clone(self) -> "EtcdStore":
        return EtcdStore(self._cluster.another(), self._own_prefix, self._cluster.timeout)

    def close(self) -> None:
        if self._written:
            # Left behind it harms nobody.
            with contextlib.suppress(StoreError, Unanswered):
                request = ask.txn(success=[ask.delete(self._own)])
                self._cluster.ask_once("Txn", request, time.monotonic() + 1.0)
            self._written = 0
        self._cluster.close()

    def _deadline(self) -> float:
        return time.monotonic() + self._cluster.timeout

    def _find(self, name: bytes, deadline: float) -> ask.Found:
        return ask.found(self._cluster.ask("Range", ask.range_request(name), deadline))

    def _update(self, key: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """Make the value another one, computed from it; again whenever somebody was quicker."""
        name, deadline = check_key(key), self._deadline()
        value, revision = self._find(name, deadline)
        for delay in backoff(0.002, 0.05):
            after = change(value)
            condition = ask.revision_is(name, revision)
            happened, (value, revision) = self._write(
                name, [condition], [ask.put(name, after)], deadline
            )
            if happened:
                return after
            self._check_time(key, deadline)
            # Those who collided must not do so again.
            time.sleep(delay * random.random())
        raise AssertionError("back-off never ends")

    def _check_time(self, key: str, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise StoreError(
                f"{key}: others changed it whenever we were about to, for "
                f"{self._cluster.timeout:g} s; let fewer processes write to one key"
            )

    def _compare_set_long(
        self, name: bytes, expected: bytes, desired: bytes, deadline: float
    ) -> bytes | None:
        """Compare here, and have etcd compare the revision at which that was written."""
        value, revision = self._find(name, deadline)
        while value == expected:
            condition = ask.revision_is(name, revision)
            happened, (value, revision) = self._write(
                name, [condition], [ask.put(name, desired)], deadline
            )
            if happened:
                return desired
        return value

    def _await_put(self, name: bytes, revision: int, seconds: float) -> bytes | None:
        """The first value after that revision; None if there was none for so long."""
        create = MESSAGES["WatchCreateRequest"](key=name, start_revision=revision + 1, filters=[1])
        request = MESSAGES["WatchRequest"](create_request=create)
        answers = self._cluster.watch(request, seconds)
        with contextlib.closing(answers):
            for answer in answers:
                if answer.canceled:
                    # Compacted since we looked, or the member lost its leader.
                    raise Unanswered(answer.cancel_reason or "it cancelled a watch")
                for event in answer.events:
                    return bytes(event.kv.value)
        return None

    def _write(
        self, name: bytes, conditions: list[Any], changes: list[Any], deadline: float
    ) -> tuple[bool, ask.Found]:
        """Whether the conditions held and the changes are made, once; else what the key holds."""

        def change(done: bytes) -> list[Any]:
            return [*changes, ask.put(self._own, done)]

        note, answer = self._once(name, conditions, change, deadline)
        if note is not None or answer.succeeded:
            return True, (None, 0)
        return False, ask.found(answer.responses[1].response_range)

    def _once(
        self,
        name: bytes,
        conditions: list[Any],
        change: Callable[[bytes], list[Any]],
        deadline: float,
    ) -> tuple[bytes | None, Any]:
        """Change under conditions, once: etcd's answer, or, if that is lost, the change's note.

        `change` is given what it must put into our own key; what it adds to that is its note.
        """
        # The numbers of two threads would be taken for repetitions of one write.
        if not self._busy.acquire(blocking=False):
            raise StoreError("two threads use one connection to the store; give each its clone")
        try:
            return self._numbered(name, conditions, change, deadline)
        finally:
            self._busy.release()

    def _numbered(
        self,
        name: bytes,
        conditions: list[Any],
        change: Callable[[bytes], list[Any]],
        deadline: float,
    ) -> tuple[bytes | None, Any]:
        if not self._written:
            self._settle(0, deadline)  # makes our key
        for delay in backoff(0.01, 0.5):
            self._written += 1
            number = _number(self._written)
            request = ask.txn(
                [ask.value_below(self._own, number), *conditions],
                change(number + DONE),
                [ask.range_op(self._own), ask.range_op(name)],
            )
            try:
                answer = self._cluster.ask_once("Txn", request, deadline)
            except Unanswered as error:
                self._cluster.pause(delay, deadline, error)
                if (note := self._settle(self._written, deadline)) is not None:
                    return note, None
                continue
            if answer.succeeded or ask.found(answer.responses[0].response_range)[0] is not None:
                return None, answer
            self._settle(self._written, deadline)  # somebody deleted our key: make it again
        raise AssertionError("back-off never ends")

    def _settle(self, written: int, deadline: float) -> bytes | None:
        """The note of our write of that number, if it happened; if not, it cannot any more."""
        number = _number(written)
        void = ask.put(self._own, number + VOID)
        look = [ask.range_op(self._own)]
        exists = ask.txn([ask.value_below(self._own, number)], [void], look)
        answer = self._cluster.ask("Txn", exists, deadline)
        if answer.succeeded:
            return None
        found, _ = ask.found(answer.responses[0].response_range)
        if found is None:
            create = ask.txn([ask.revision_is(self._own, 0)], [void], look)
            self._cluster.ask("Txn", create, deadline)
            self._written = max(self._written, 1)
            return None
        done = number + DONE
        return found.removeprefix(done) if found.startswith(done) else None


def _number(written: int) -> bytes:
    """In an order that etcd sees: it compares bytes."""
    return b"%020d " % written
