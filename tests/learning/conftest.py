import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    """Tests that change the number of threads leave no trace, and the others stay on one core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
