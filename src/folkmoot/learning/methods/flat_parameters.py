"""A module's trainable parameters and their gradients, each in one flat float32 buffer.

The parameters become views of the buffer, so a kernel that knows offsets reaches all of them
without a loop over tensors. Build it after the module is on its device; moving or retyping the
module afterwards would detach it, which `refresh` notices.
"""

from __future__ import annotations

import torch

from folkmoot.learning.methods.protocol import trainable


class FlatParameters:
    def __init__(self, module: torch.nn.Module) -> None:
        named = trainable(module)
        for name, p in named:
            if p.dtype != torch.float32:
                raise ValueError(
                    f"parameter {name} is {p.dtype}; exchange methods keep float32 weights. Build "
                    "the model in float32 and compute in bfloat16 with torch.autocast."
                )
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self.shapes = [(name, tuple(p.shape)) for name, p in named]
        device = self.parameters[0].device if named else torch.device("cpu")
        size = sum(p.numel() for p in self.parameters)
        self.weights = torch.empty(size, dtype=torch.float32, device=device)
        self.grads = torch.zeros_like(self.weights)
        self._views = self._cut(self.grads)
        for p, home in zip(self.parameters, self._cut(self.weights), strict=True):
            home.copy_(p.data)
            p.data, p.grad = home, None

    def _cut(self, flat: torch.Tensor) -> list[torch.Tensor]:
        pieces = torch.split(flat, [p.numel() for p in self.parameters])
        return [x.view(p.shape) for x, p in zip(pieces, self.parameters, strict=True)]

    def clear_grads(self) -> None:
        """Zero gradients, placed so that backward adds into the flat buffer."""
        self.grads.zero_()
        for p, view in zip(self.parameters, self._views, strict=True):
            p.grad = view

    def collect_grads(self) -> None:
        """Bring home gradients that a closure put elsewhere (`zero_grad` with None does)."""
        for p, view in zip(self.parameters, self._views, strict=True):
            if p.grad is not view:
                view.zero_() if p.grad is None else view.copy_(p.grad)

    def refresh(self) -> None:
        """Raise if the module's parameters are no longer the views made here."""
        at = self.weights.data_ptr()
        for name, p in zip(self.names, self.parameters, strict=True):
            if p.numel() and p.data_ptr() != at:
                raise RuntimeError(
                    f"parameter {name} no longer lives in the method's buffer: the module was "
                    "moved or retyped after the method was built. Build a new method and load "
                    "its state."
                )
            at += 4 * p.numel()
