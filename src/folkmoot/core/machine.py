"""The vocabulary of every machine here. Whoever knows one knows all.

A machine is a module with the names of `Machine` below: pure functions around one frozen state.

- `apply` takes one event and gives the new state and the effects, in the order in which the shell
  must carry them out. Time (whole milliseconds) and randomness (a seed of 64 bits, used where a
  choice begins) are arguments. An event is refused with a reason, and then the very same state
  comes back; or it is recorded, and then the machine's table is asked what follows.
- Only the table changes `phase`, and every change is told as a `StateChanged`.
- Equal states encode to equal bytes on every computer. Replaying the recorded events from the
  first state gives the same bytes again.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from folkmoot.core.table import Edge
from folkmoot.core.unreadable import UNREADABLE


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Anything that `apply` takes."""


class Effect(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Anything that `apply` gives."""


class Tick(Event, frozen=True, tag=True):
    """Time has passed."""


class Refused(Effect, frozen=True, tag=True):
    """The event changed nothing. `code` names why; `reason` is a sentence for its sender."""

    code: str
    reason: str


class StateChanged(Effect, frozen=True, tag=True):
    """The machine went from one phase to another, or into the same one anew."""

    before: str
    after: str
    why: str = ""


class Stateful(Protocol):
    @property
    def phase(self) -> str: ...


State = TypeVar("State", bound=Stateful)


class Outcome(NamedTuple, Generic[State]):
    state: State
    effects: tuple[Effect, ...]

    @property
    def refused(self) -> Refused | None:
        """Why the event changed nothing, if it was refused."""
        return next((e for e in self.effects if isinstance(e, Refused)), None)


class Machine(Protocol[State]):
    """What a machine's module offers to its driver, its world, its transcripts and its diagram."""

    TABLE: tuple[Edge[Any], ...]
    AnyEvent: Any  # the union of its events, to decode them

    @property
    def apply(self) -> Callable[[State, Any, int, int], Outcome[State]]: ...
    @property
    def next_tick(self) -> Callable[[State, int], int | None]: ...
    @property
    def encode(self) -> Callable[[State], bytes]: ...
    @property
    def decode(self) -> Callable[[bytes], State]: ...


_encoder = msgspec.msgpack.Encoder(order="deterministic")


def encode(state: msgspec.Struct) -> bytes:
    """The canonical bytes of a state: equal states, equal bytes."""
    return _encoder.encode(state)


def decoder(type_: type[State]) -> Callable[[bytes], State]:
    """What reads back the bytes of such a state; it raises `msgspec.ValidationError`."""
    decode = msgspec.msgpack.Decoder(type_).decode

    def read(data: bytes) -> State:
        try:
            return decode(data)
        except UNREADABLE as error:
            raise msgspec.ValidationError(str(error)) from error

    return read
