"""A stored checkpoint's state hash, from its bytes alone."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.model_config import GptConfig
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints import state_hash
from folkmoot.learning.checkpoints.leaf_hash import root_hash
from folkmoot.learning.checkpoints.manifest import CheckpointError, NotWanted
from folkmoot.learning.checkpoints.save import save
from folkmoot.learning.checkpoints.stored_hash import _leaf_hashes, stored_hash
from folkmoot.learning.models import build

TINY = GptConfig(vocab_size=65, layers=1, heads=2, width=16, hidden=16, context=16)


@pytest.mark.parametrize("tied", [True, False])
def test_it_is_the_hash_that_clients_agree_on(tmp_path: Path, tied: bool) -> None:
    model = build(GptConfig(**{**_fields(TINY), "tie_embeddings": tied}), 1, "cpu")
    state = {
        "shared.outer": torch.arange(7, dtype=torch.float64),
        "shared.half": torch.ones(3, 5, dtype=torch.bfloat16),
        "shared.none": torch.empty(0, dtype=torch.int64),
    }
    name = save(Bucket(str(tmp_path)), 3, model, state=state)
    parts = {**dict(model.named_parameters()), **state}
    agreed = root_hash({n: state_hash.leaf_hash(n, part) for n, part in parts.items()})
    assert stored_hash(Bucket(str(tmp_path)), name, 3, lambda: False) == agreed
    with pytest.raises(CheckpointError, match="is of step 3, not of 4"):
        stored_hash(Bucket(str(tmp_path)), name, 4, lambda: False)
    with pytest.raises(NotWanted):
        stored_hash(Bucket(str(tmp_path)), name, 3, lambda: True)


def _fields(config: GptConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in config.__struct_fields__}


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    name = save(Bucket(str(tmp_path)), 3, build(TINY, 1, "cpu"))
    file = tmp_path / name / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CheckpointError, match="hash differs"):
        stored_hash(Bucket(str(tmp_path)), name, 3, lambda: False)


def test_no_torch_is_needed() -> None:
    code = "import sys, folkmoot.runs.stored_checkpoint; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


HEADERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
)
SPANS = st.dictionaries(
    st.text(max_size=4),
    st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["F32", "BOOL", "X"]),
            "shape": st.lists(st.integers(-1, 2**63), max_size=3),
            "data_offsets": st.tuples(st.integers(-1, 64), st.integers(-1, 2**64)),
        }
    )
    | HEADERS,
    max_size=3,
)


@given(st.one_of(st.binary(max_size=80), SPANS), st.binary(max_size=64), st.integers(1, 9))
def test_any_bytes_give_leaves_or_a_checkpoint_error(
    header: object, body: bytes, size: int
) -> None:
    if isinstance(header, bytes):
        content = header + body
    else:
        text = json.dumps(header).encode()
        content = len(text).to_bytes(8, "little") + text + body
    chunks = (content[at : at + size] for at in range(0, len(content), size))
    with contextlib.suppress(CheckpointError):
        _leaf_hashes(chunks, "here")
