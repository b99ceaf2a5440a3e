"""DisTrO the straightforward way, to measure against: per tensor, einsum with the DCT matrix, topk.

Momentum in weight space, one dense transform to send and one inverse to subtract what was sent,
peers' messages concatenated and scatter-reduced, one inverse to apply, as public code does.
Nothing is packed: messages are index and sign tensors.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.fft
import torch

from folkmoot.learning.methods.distro.plan import as_matrices, largest_divisor

Message = list[tuple[torch.Tensor, torch.Tensor]]


def _matrix(n: int) -> torch.Tensor:
    return torch.from_numpy(scipy.fft.dct(np.eye(n), axis=0, norm="ortho").astype(np.float32))


class EinsumDistro:
    def __init__(self, parameters: list[torch.nn.Parameter], k: int, decay: float) -> None:
        self.parameters, self.k, self.decay = parameters, k, decay
        self.delta = [torch.zeros_like(p) for p in parameters]
        self.sides = []
        for p in parameters:
            _, rows, columns = as_matrices(p.shape)
            self.sides.append((largest_divisor(rows, 64), largest_divisor(columns, 64)))
        self.basis = {n: _matrix(n) for side in self.sides for n in side}

    def _cut(self, x: torch.Tensor, h: int, w: int) -> torch.Tensor:
        columns = as_matrices(x.shape)[2]
        return x.reshape(-1, h, columns // w, w)

    def encode(self, x: torch.Tensor, h: int, w: int) -> torch.Tensor:
        a, b = self.basis[h], self.basis[w]
        return torch.einsum("ijkl,bj,dl->ikbd", self._cut(x, h, w), a, b).flatten(2)

    def decode(self, c: torch.Tensor, h: int, w: int, shape: torch.Size) -> torch.Tensor:
        a, b = self.basis[h], self.basis[w]
        return torch.einsum("ikbd,bj,dl->ijkl", c.unflatten(2, (h, w)), a, b).reshape(shape)

    def compress(self) -> Message:
        message = []
        clip = torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        assert math.isfinite(float(clip))
        for p, delta, (h, w) in zip(self.parameters, self.delta, self.sides, strict=True):
            delta.mul_(self.decay).add_(p.grad)
            c = self.encode(delta, h, w)
            index = c.abs().topk(min(self.k, h * w), dim=-1).indices
            value = c.gather(-1, index)
            delta.sub_(self.decode(torch.zeros_like(c).scatter_(-1, index, value), h, w, p.shape))
            message.append((index, value.sign()))
        return message

    @torch.no_grad()
    def apply(self, messages: list[Message], lr: float) -> None:
        for number, (p, (h, w)) in enumerate(zip(self.parameters, self.sides, strict=True)):
            index = torch.cat([m[number][0] for m in messages], dim=-1)
            value = torch.cat([m[number][1] for m in messages], dim=-1)
            c = torch.zeros(*index.shape[:-1], h * w)
            c.scatter_reduce_(-1, index, value, reduce="mean", include_self=False)
            p.add_(self.decode(c, h, w, p.shape).sign_(), alpha=-lr)
