"""The requests of a rank's machine, carried out on a store.

A request whose answer was lost is asked again: all of them bear that (`core/iteration/messages`).
"""

import time
from collections.abc import Callable, Iterator

from folkmoot.authority.store.kv import Store, StoreError, StoreGone, Wakeup
from folkmoot.core.iteration.messages import (
    WOKEN,
    Add,
    Arrive,
    CompareSet,
    Decide,
    GetMany,
    Request,
    Set,
    Wait,
)
from folkmoot.core.iteration.record import count_notes
from folkmoot.elastic.errors import Garbage, StoreLost
from folkmoot.host.clock import backoff

# Seconds for which the store may be away before a rank gives up.
PATIENCE = 30.0
Values = tuple[bytes | None, ...]


def ask(store: Store, request: Request) -> Values:
    """The store's answer, for `Answered`."""
    return ASK[type(request)](store, request)


def _arrive(store: Store, r: Arrive) -> Values:
    """Arrive, and wait if nothing else is to be done."""
    enough = r.enough
    wakeup = Wakeup(lambda listed: count_notes(listed) < enough, r.wakeup, r.ms / 1000, r.then)
    return store.compare_set_and_append(r.key, r.expected, r.desired, r.arrived, r.note, wakeup)


ASK: dict[type, Callable[..., Values]] = {
    CompareSet: lambda s, r: (s.compare_set(r.key, r.expected, r.desired),),
    Add: lambda s, r: (b"%d" % s.add(r.key, r.amount),),
    Arrive: _arrive,
    Decide: lambda s, r: (s.compare_set_then_set(r.key, r.expected, r.desired, r.wakeups, WOKEN),),
    GetMany: lambda s, r: tuple(s.get_many(r.keys)),
    Wait: lambda s, r: (s.wait(r.key, r.ms / 1000, r.then),),
    Set: lambda s, r: (s.set(r.key, r.value),),
}


def ask_patiently(store: Store, request: Request, patience: float) -> Values:
    """The same, while the store may be away for up to `patience` seconds."""
    tries: Iterator[float] | None = None
    carry_out = ASK[type(request)]
    while True:
        try:
            return carry_out(store, request)
        except StoreGone as gone:
            if tries is None:
                tries, deadline = backoff(0.05, 1.0), time.monotonic() + patience
            delay = next(tries)
            if time.monotonic() + delay > deadline:
                raise StoreLost(str(gone)) from gone
        except StoreError as error:
            raise Garbage(str(error)) from error
        time.sleep(delay)
