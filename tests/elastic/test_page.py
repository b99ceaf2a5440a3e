"""Every example of docs/elastic.md, run as a reader would."""

import re
from pathlib import Path

import pytest

from support.commands import elastic_run

PAGE = (Path(__file__).parents[2] / "docs" / "elastic.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs_in_two_ranks(example: str, tmp_path: Path, tcp_store_url: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(example + ("print(model.weight.tolist())\n" if "model" in example else ""))
    done = elastic_run("-n", "2", "--max-restarts=0", f"--store={tcp_store_url}", script)
    if "model" in example:
        weights = [line.partition("] ")[2] for line in done.stdout.splitlines()]
        assert len(weights) == 2
        assert weights[0] == weights[1]
    else:
        assert "[1] iteration 20 with ranks (0, 1)" in done.stdout


def test_the_page_names_every_error() -> None:
    from folkmoot import elastic

    errors = [name for name in elastic.__all__ if name != "GlobalIteration"]
    assert [name for name in errors if f"`{name}`" not in PAGE] == []
