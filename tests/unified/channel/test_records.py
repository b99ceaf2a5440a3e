"""Records as bytes, and back."""

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.unified.channel import records


def there_and_back(record: object) -> Any:
    encoded = b"".join(records.encode(record))
    return records.decode(memoryview(bytearray(encoded)), 0, len(encoded))


@given(st.lists(st.integers() | st.binary() | st.none(), max_size=5))
def test_any_value_comes_back(value: object) -> None:
    assert there_and_back(value) == value


@given(st.binary(max_size=20) | st.sampled_from([bytes(records.SMALL), bytes(100_000)]))
def test_bytes_come_back_as_bytes_and_others_as_what_they_were(value: bytes) -> None:
    assert there_and_back(value) == value
    assert type(there_and_back(value)) is bytes
    assert type(there_and_back(bytearray(value))) is bytearray


@given(st.lists(st.tuples(st.sampled_from(["u1", "f4", "f8"]), st.integers(0, 9000)), max_size=4))
def test_arrays_come_back_in_place_and_aligned(shapes: list[tuple[str, int]]) -> None:
    arrays = [np.arange(count).astype(kind) for kind, count in shapes]
    back = there_and_back({"some": arrays})["some"]
    for array, same in zip(arrays, back, strict=True):
        assert same.dtype == array.dtype
        assert np.array_equal(array, same)
        assert same.flags.aligned
        assert same.flags.writeable


def test_tensors_come_back() -> None:
    tensor = torch.arange(20_000).reshape(100, 200).float()
    back = there_and_back([tensor, tensor.T])
    assert torch.equal(back[0], tensor)
    assert torch.equal(back[1], tensor.T)
