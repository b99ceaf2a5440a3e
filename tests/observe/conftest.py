"""A run's logs, read."""

from pathlib import Path

import pytest

from folkmoot.observe.picture import Picture
from observe.logs_of_a_run import write_run


@pytest.fixture
def picture(tmp_path: Path) -> Picture:
    write_run(tmp_path)
    return Picture(tmp_path)
