import hypothesis
import pytest
import torch

# The first call of a compiled kernel compiles it; how long an example takes says nothing here.
hypothesis.settings.register_profile("learning", deadline=None)
hypothesis.settings.load_profile("learning")


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests that change the number of threads leave no trace, and the others stay on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
