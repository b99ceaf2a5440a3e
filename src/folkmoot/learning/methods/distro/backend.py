"""What a device must do for DisTrO: the interface of `reference` and of the CPU's `cpu/backend`.

A backend is a module with these functions. All buffers are flat float32 and laid out by the plan:
weights and gradients as the parameters lie, momentum and second moments as coefficients, chunk by
chunk. Every backend gives the bits of `reference`; the tests compare them. A backend for another
device stands beside `cpu/` and is chosen in `backend_for`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Protocol, TypeVar

import torch

from folkmoot.learning.methods.bfloat16 import Floats
from folkmoot.learning.methods.distro.backup import WeightBackup
from folkmoot.learning.methods.distro.plan import Plan
from folkmoot.learning.methods.distro.treatment import Stepping
from folkmoot.learning.methods.distro.wire import Indices
from folkmoot.learning.methods.protocol import Refusal

T = TypeVar("T")
R = TypeVar("R")


class Backend(Protocol):
    def compress(
        self, plan: Plan, grad: torch.Tensor, momentum: torch.Tensor, scale: float, decay: float
    ) -> tuple[Indices, Floats]:
        """momentum ← decay · momentum + scale · DCT(grad); take its top k out and return them."""

    def add_entries(
        self, plan: Plan, coefficients: torch.Tensor, index: Indices, value: Floats, scale: float
    ) -> None:
        """Add entries, scaled, to a buffer of coefficients."""

    def apply(
        self,
        plan: Plan,
        weights: torch.Tensor,
        payloads: list[bytes],
        second: torch.Tensor | None,
        s: Stepping,
    ) -> None:
        """Sum the payloads in the order given, each chunk of each with the energy of k ones times
        the payload's weight; invert once, treat, step."""

    def look_ahead(
        self,
        plan: Plan,
        weights: torch.Tensor,
        momentum: torch.Tensor,
        distance: float,
        treatment: int,
    ) -> None:
        """Move the weights by −distance along what the momentum stands for, treated; their lowest
        bytes stay."""

    def back_up(self, weights: torch.Tensor, backup: WeightBackup) -> None:
        """Copy what a look-ahead changes of the weights."""

    def restore(self, weights: torch.Tensor, backup: WeightBackup) -> None:
        """Undo a look-ahead, bit for bit."""

    def pack(self, plan: Plan, index: Indices, value: Floats) -> bytes:
        """The payload of these entries (wire.py)."""

    def check_body(self, plan: Plan, payload: bytes) -> Refusal | None:
        """Why a payload that passed `check_frame` cannot be applied, if so."""

    def sketch(self, plan: Plan, payload: bytes) -> bytes:
        """The sketch (methods/sketch.py) of a payload that passed every check."""

    def parallel_map(self, work: Callable[[T], R], things: Sequence[T]) -> Iterable[R]:
        """As `map`, in threads where the backend has use for them."""


def backend_for(device: torch.device) -> Backend:
    """Compiled kernels on a CPU; plain torch elsewhere, and where numba is not installed."""
    if device.type == "cpu" and find_spec("numba") is not None:
        from folkmoot.learning.methods.distro.cpu import backend

        return backend
    from folkmoot.learning.methods.distro import reference

    return reference
