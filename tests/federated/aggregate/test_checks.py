"""An update is counted only when everything about it is right; the reason says what was not."""

import re

import numpy as np
import pytest

from folkmoot.federated.aggregate import ModelUpdate
from folkmoot.federated.aggregate.checks import MAX_SAMPLES, bad_update
from folkmoot.federated.model_file.layout import BLOCK
from folkmoot.federated.model_file.memory import MemoryModel
from folkmoot.federated.model_file.reader import ModelFile
from support.models import save_model

GLOBAL = MemoryModel({"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)})


def update(samples=5, base=GLOBAL, **changes):
    arrays = {**GLOBAL.arrays, **changes}
    present = {name: array for name, array in arrays.items() if array is not None}
    return ModelUpdate("p", samples, MemoryModel(present), base=base)


def test_a_good_update_is_accepted():
    assert bad_update(update(), GLOBAL.layout) == ""


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (update(samples=0), "number_samples is 0"),
        (update(samples=-3), "number_samples is -3"),
        (update(samples=MAX_SAMPLES + 1), "number_samples"),
        (update(b=None), "array 'b' of the global model is missing"),
        (update(extra=np.zeros(1, np.float32)), "array 'extra' is not in the global model"),
        (update(w=np.zeros((3, 2), np.float32)), r"shape \(3, 2\)"),
        (update(w=np.zeros(6, np.float32)), r"shape \(6,\)"),
        (update(w=np.zeros((2, 3), np.float64)), "dtype F64"),
        (update(w=np.zeros((2, 3), np.int32)), "dtype I32"),
        (update(b=np.float32([0, np.nan, 0])), "array 'b' at flat position 1 is nan"),
        (update(b=np.float32([0, 0, -np.inf])), "array 'b' at flat position 2 is -inf"),
    ],
)
def test_a_bad_update_is_quarantined_with_the_reason(bad, reason):
    assert re.search(reason, bad_update(bad, GLOBAL.layout))


def test_the_initial_round_needs_no_samples_but_never_negative_ones():
    assert bad_update(update(samples=0, base=None), None) == ""
    assert "number_samples is -1" in bad_update(update(samples=-1, base=None), None)


def test_a_name_too_long_for_a_server_optimizer_is_refused_before_it_becomes_the_model():
    reason = bad_update(update(base=None, **{"x" * 501: np.zeros(1, np.float32)}), None)
    assert "has 501 characters" in reason


def test_the_last_value_of_a_large_file_is_looked_at(tmp_path):
    values = np.zeros(2 * BLOCK + 5, np.float32)
    values[-1] = np.nan
    save_model(tmp_path / "update", {"w": values})
    with ModelFile(tmp_path / "update") as source:
        reason = bad_update(ModelUpdate("p", 1, source, base=source), source.layout)
    assert f"flat position {2 * BLOCK + 4} is nan" in reason


def test_a_file_that_shrinks_while_it_is_read_is_quarantined_not_fatal(tmp_path):
    save_model(tmp_path / "update", {"w": np.zeros(BLOCK, np.float32)})
    with ModelFile(tmp_path / "update") as source:
        with open(tmp_path / "update", "r+b") as file:
            file.truncate(1000)
        reason = bad_update(ModelUpdate("p", 1, source, base=source), source.layout)
    assert "cannot be read" in reason
