import itertools

import numpy as np
import pytest
from blake3 import blake3

from folkmoot.federated.model_file.hashing_writer import PIECE
from folkmoot.federated.model_file.layout import encode_header, layout_of
from folkmoot.federated.model_file.outgoing import OutgoingModel

ARRAYS = {
    "a": np.arange(100_000, dtype=np.float32),
    "b": np.arange(70_000, dtype=np.float64).reshape(100, 700).T,  # which is not in one stretch
    "c": np.zeros(0, np.float32),
}
LAYOUT = layout_of(ARRAYS)
BODY = encode_header(LAYOUT) + b"".join(
    np.ascontiguousarray(ARRAYS[name]).tobytes() for name in LAYOUT
)


CUTS = (0, PIECE + 5, len(BODY) - 1, len(BODY))


@pytest.mark.parametrize("cuts", list(itertools.permutations(CUTS)))
def test_a_body_is_hashed_once_from_wherever_it_is_sent(cuts: tuple[int, ...]) -> None:
    """A line is cut after the first piece of each but the last time."""
    model = OutgoingModel(ARRAYS)
    assert model.size == len(BODY)
    *broken, last = cuts
    for cut in broken:
        pieces = model.pieces(cut)
        assert BODY[cut:].startswith(next(pieces, b""))
        pieces.close()
    assert b"".join(model.pieces(last)) == BODY[last:]
    assert model.digest() == blake3(BODY).digest()
