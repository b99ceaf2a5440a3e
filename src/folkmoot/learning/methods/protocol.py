"""What every exchange method promises: DisTrO, dense averaging, DiLoCo, SparseLoCo.

A method is built on a torch module and changes its parameters in place. A round is

    contribution = method.contribute(closure, step, lr)   # train on own data; bytes to send
    method.apply(payloads, step - method.delay, lr, samples)   # take in what everyone sent then

with `samples` how many each payload was trained on (without it, all count alike), `apply` left out
for the first `delay` rounds, and called once more for each of the last `delay` rounds at the end.
The promises:

- **Same bits everywhere.** `apply` depends on the weights, the shared state, the payloads *in the
  order given*, their samples, the step and lr; on nothing else — not on threads, not on what this
  client sent. Choosing the payloads (each sender once) and ordering them (by sender, say) is the
  caller's: all clients must pass the same list. An empty list leaves weights and shared state as
  they were.
- **Bounded influence.** However loud a payload is, and however many samples are said to be behind
  it, it moves the weights about as far as any other (`influence.py`).
- **`contribute` leaves the weights as it found them**, bit for bit, also when the closure raises;
  then it leaves no trace in the state either, and may be called again. Only `apply` moves weights.
- **Payloads are strangers' bytes.** `check` tells, without side effects and before anything is
  allocated in proportion to what the payload claims, whether `apply` would take it. `apply` checks
  again, before it changes anything.
- **Exact resume.** The module's parameters and `state_dict()` are the whole state. Names start with
  `shared.` (equal on all clients) or `own.` (this client's error feedback and the like). Loading a
  dict without any `own.` entry is how a joiner starts: shared state from a peer, its own from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec
import torch

Closure = Callable[[int], float]
"""Runs forward and backward for the i-th local step, *adds* gradients to each parameter's `.grad`
and returns the loss. The method clears the gradients before each call. A cancelled round raises."""


ParallelMap = Callable[
    [Callable[[bytes], "Refusal | None"], Sequence[bytes]], Iterable["Refusal | None"]
]
"""How a check is made of every payload: `map`, or the like of it with threads."""


class Contribution(msgspec.Struct, frozen=True):
    payload: bytes
    loss: float
    """Mean over the local steps."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a payload cannot be taken in: a word for programs, a sentence for people."""

    reason: str
    detail: str


class RefusedPayload(ValueError):
    """A payload handed to `apply` does not pass `check`; nothing was changed."""

    def __init__(self, position: int, refusal: Refusal) -> None:
        super().__init__(
            f"payload {position} of the round was refused ({refusal.reason}): {refusal.detail}"
        )
        self.position = position
        self.refusal = refusal


@runtime_checkable
class Method(Protocol):
    @property
    def delay(self) -> int:
        """Rounds by which `apply` trails `contribute`; 0 is synchronous."""
        ...

    @property
    def local_steps(self) -> int:
        """How often one `contribute` calls its closure."""
        ...

    @property
    def payload_size(self) -> int:
        """Bytes of every payload of this method for this model: exact, whatever was trained."""
        ...

    def contribute(self, closure: Closure, step: int, lr: float) -> Contribution: ...

    def apply(
        self, payloads: Sequence[bytes], step: int, lr: float, samples: Sequence[int] = ()
    ) -> None: ...

    def check(self, payload: bytes) -> Refusal | None: ...

    def sketch(self, payload: bytes) -> bytes:
        """What stands for a payload that passed `check` where witnesses compare directions
        (`sketch.of_values`); empty where directions cannot be compared."""
        ...

    def contrast(self, payload: bytes, others: Sequence[bytes]) -> torch.Tensor | None:
        """What a payload would take from the weights, less the mean of what others would, all with
        the same length and checked: one value for each weight, in the order of `trainable`, in any
        scale. None where results cannot be audited (`learning/trial.py`)."""
        ...

    def state_dict(self) -> dict[str, torch.Tensor]: ...

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None: ...


def refuse_bad(method: Method, payloads: Sequence[bytes], parallel_map: ParallelMap = map) -> None:
    """Raise RefusedPayload for the first payload that `method` would not take."""
    for position, refusal in enumerate(parallel_map(method.check, payloads)):
        if refusal is not None:
            raise RefusedPayload(position, refusal)


def has_own_state(state: Mapping[str, torch.Tensor]) -> bool:
    """Whether a state is a client's own to resume; without, it is a peer's, for a joiner."""
    return any(name.startswith("own.") for name in state)


def trainable(module: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    """The parameters that learn, sorted by name, tied ones once: the order of every payload."""
    return sorted(
        ((n, p) for n, p in module.named_parameters() if p.requires_grad), key=lambda pair: pair[0]
    )
