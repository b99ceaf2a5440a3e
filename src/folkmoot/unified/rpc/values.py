"""Python values as parts of a frame: pickle 5, with arrays beside it instead of copied into it.

Only bytes of a peer that showed the job's secret get here. CPU tensors travel as arrays do, and
come out as plain tensors with memory of their own; two views of one memory become two tensors.
"""

import copyreg
import io
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from folkmoot.unified.rpc.handshake import Buffer

# Smaller arrays are copied into the pickle: a part of its own would cost more than the copy.
SMALLEST_BESIDE = 4096
MOST_BESIDE = 400

Reducer = Callable[[Any], Any]
_tensor_reducers: dict[type, Reducer] = {}


def dump(value: object) -> list[Buffer]:
    """The parts of a value: the pickle, then what lies beside it. Not copied: send it soon."""
    beside: list[memoryview] = []

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < SMALLEST_BESIDE or len(beside) >= MOST_BESIDE:
            return True
        beside.append(raw)
        return False

    if "torch" not in sys.modules:
        return [pickle.dumps(value, 5, buffer_callback=keep_inside), *beside]
    written = io.BytesIO()
    pickler = pickle.Pickler(written, 5, buffer_callback=keep_inside)
    pickler.dispatch_table = {**copyreg.dispatch_table, **_reducers()}
    pickler.dump(value)
    return [written.getbuffer(), *beside]


def load(parts: Sequence[Buffer]) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])


def _reducers() -> dict[type, Reducer]:
    if not _tensor_reducers:
        import torch

        _tensor_reducers[torch.Tensor] = _reduce_tensor
    return _tensor_reducers


def _reduce_tensor(tensor: Any) -> Any:
    import torch

    plain = tensor.device.type == "cpu" and tensor.layout is torch.strided
    special = tensor.requires_grad or tensor.is_quantized or tensor.is_conj() or tensor.is_neg()
    if not plain or special or not tensor.numel() or tensor._backward_hooks:
        return tensor.__reduce_ex__(5)
    raw = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (pickle.PickleBuffer(raw), tensor.dtype, tuple(tensor.shape))


def _tensor(raw: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.frombuffer(raw, dtype=dtype).reshape(shape)
