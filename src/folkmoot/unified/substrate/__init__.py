"""Where the actors of a job live. A substrate makes them, ends them and says when one has ended.

Orders return at once; what came of them is told, from a thread of the substrate's own:

- `Created` once an actor exists, `Ended` once it does not, however that came: both name the actor
  and its incarnation. An actor that could not be made has ended. Nobody asks in a loop.
- `Placed` or `Unplaceable` for every `Place`; `NodeLost` when a machine is gone with all on it.

Nothing that is made here shares the fate of the process that ordered it: after `close`, or
`kill -9`, actors go on; the next master's `open` says which ones live and how others ended. Orders
carry that master's epoch, and one with a lower epoch than was seen is refused (`Superseded`).
`kill` really kills, hung actors too. `end` ends all and leaves nothing behind.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec

from folkmoot.core.job.messages import Place, Placed, Unplaceable
from folkmoot.core.user_error import UserError


class SubstrateError(UserError):
    """The substrate cannot be used; the message says why and what to do."""


class Superseded(SubstrateError):
    """A newer master gives the orders now."""


class Name(NamedTuple):
    """One life of an actor."""

    actor: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.actor}.{self.incarnation}"


class OfActor(msgspec.Struct, frozen=True):
    """Anything that is about one life of an actor."""

    actor: str
    incarnation: int

    @property
    def name(self) -> Name:
        return Name(self.actor, self.incarnation)


class Launch(OfActor, frozen=True, kw_only=True):
    """How an actor is made: `main` (`module:function`) is called with `argument`."""

    main: str
    argument: bytes = b""
    env: dict[str, str] = {}
    # What it prints goes to this file, if one is named.
    log: str = ""
    # Where its worker was placed; "" is anywhere.
    node: str = ""
    # What it uses of that place, by name.
    needs: dict[str, float] = {}


class Created(OfActor, frozen=True, tag=True):
    node: str
    pid: int


class Ended(OfActor, frozen=True, tag=True):
    """`how` is a clause: "was ended by SIGKILL"."""

    how: str
    clean: bool = False  # its `main` returned


class NodeLost(msgspec.Struct, frozen=True, tag=True):
    node: str


class SubstrateLost(msgspec.Struct, frozen=True, tag=True):
    """Orders reach nobody any more: trying again did not help, or another master gives them."""

    why: str
    replaced: bool = False


SubstrateEvent = Created | Ended | Placed | Unplaceable | NodeLost | SubstrateLost
Tell = Callable[[SubstrateEvent], None]


class Found(NamedTuple):
    """What a master finds when it comes (back)."""

    living: tuple[Created, ...]
    ended: tuple[Ended, ...]


class Substrate(Protocol):
    #: Where actors reach this machine, once open; "" where all are on it.
    host: str

    def open(self, epoch: int, tell: Tell) -> Found:
        """Take the orders over from whoever had this job before."""
        ...

    def announce(self, address: str) -> None:
        """Tell the actors that live, and those to come, where this master is reached."""
        ...

    def place(self, order: Place) -> None:
        """Find room for workers of a gang: for all or for none."""
        ...

    def release(self, gang: str) -> None:
        """Give back what the gang was placed on."""
        ...

    def create(self, launches: Sequence[Launch]) -> None:
        """All at the same time."""
        ...

    def kill(self, name: Name) -> None: ...

    def end(self) -> None:
        """End everything that the job has, and wait until nothing is left."""
        ...

    def close(self) -> None:
        """Let go; actors go on."""
        ...
