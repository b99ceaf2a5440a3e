"""The pipeline, small: workers are killed on the way, and every record is accounted for."""

import re

import pytest

from support.examples import run_example


@pytest.mark.parametrize("substrate", ["local", pytest.param("ray", marks=pytest.mark.faults)])
def test_every_record_comes_through_once_although_workers_are_killed(
    substrate: str, request: pytest.FixtureRequest
) -> None:
    where = []
    if substrate == "ray":
        where.append(f"--ray-address={request.getfixturevalue('ray_cluster')}")
    said = run_example("job_pipeline", "--files", "12", *where)
    assert "every record came through exactly once" in said
    assert re.search(r"killed on the way: sampler-\d, tokenizer-\d, trainer-0", said)
