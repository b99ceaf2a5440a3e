"""A run in a store for tests: its genesis, its clients, and a log that is moved by hand."""

import secrets
from collections.abc import Sequence
from typing import Any
from unittest import mock

from authority.any_run import OWNER, STRANGER, A, join, run
from folkmoot.authority.access import Access
from folkmoot.authority.store.create import create_run
from folkmoot.authority.store.genesis import Genesis, found
from folkmoot.authority.store.kv import Change, Store, Watch
from folkmoot.authority.store.kv.memory import MemoryStore
from folkmoot.authority.store.log import Log
from folkmoot.authority.store.mail import Mail, Message, read_mail, write_mail
from folkmoot.authority.store.post import Post
from folkmoot.authority.store.record import Place, Step, first_record, next_record
from folkmoot.host.signing import Identity


def genesis(allowed: Sequence[Identity] = (), **config: Any) -> Genesis:
    keys = frozenset(identity.public for identity in allowed)
    return found(run(**config), Access(keys, frozenset({OWNER.public})))


def mail(of: Genesis, slot: int, identity: Identity, message: Message) -> Mail:
    return Mail(slot, write_mail(identity, of, slot, message))


def after(
    of: Genesis,
    at: Place,
    time: int,
    *letters: tuple[int, Identity, Message],
    by: Identity = A,
    given_up: Sequence[int] = (),
) -> Step:
    """The record that takes these letters."""
    mails = [mail(of, *letter) for letter in letters]
    read = [(each, read_mail(of, each)) for each in mails]
    return next_record(of, by, at, time, read, given_up)


def begun(of: Genesis) -> Place:
    return first_record(of, OWNER)


def made(log: Log) -> Step:
    """The record that this log makes now."""
    step = log.make(0.0)
    assert step is not None
    return step


class Clock:
    """A monotonic clock that a test moves, in seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Telling(MemoryStore):
    """A store that tells what a test says is `coming`, and nothing else."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.coming: list[Change] = []

    def watch(self, key: str, numbered: str) -> Watch:  # type: ignore[override]
        return _Told(self, key)


class _Told:
    def __init__(self, store: Telling, key: str) -> None:
        self._store, self._key = store, key

    def begin(self) -> bytes | None:
        return self._store.get(self._key)

    def numbered(self, wanted: bool) -> None: ...

    def changes(self, seconds: float) -> list[Change] | None:
        came, self._store.coming = self._store.coming, []
        return came

    def close(self) -> None: ...


class RunInStore:
    """A store in memory with a run in it."""

    def __init__(self, allowed: Sequence[Identity] = (), **config: Any) -> None:
        self.name = secrets.token_hex(8)
        self.run, self.clock = run(**config), Clock()
        keys = frozenset(identity.public for identity in allowed)
        create_run(self.store(), self.run, Access(keys, frozenset({OWNER.public})), OWNER)
        self.genesis = Genesis(self.store().get("genesis") or b"")

    def store(self) -> MemoryStore:
        return MemoryStore(self.name)

    def log(self, identity: Identity, store: Store | None = None) -> Log:
        log = Log(store or self.store(), self.genesis, identity, self.clock)
        with mock.patch("folkmoot.authority.store.log.time.sleep", self.clock.sleep):
            log.begin()
        return log

    def post(self, identity: Identity, message: Message, log: Log) -> int:
        post = Post(self.store(), self.genesis, identity)
        return post.send(message, lambda: log.newest.mailbox, lambda slot: None)[0]

    def join(self, log: Log, *members: Identity) -> None:
        """They join one after the other; this log makes the records."""
        for who in members:
            self.post(who, join(who), log)
            made(log)

    def version(self) -> int:
        return self.log(STRANGER).newest.version
