"""Elastic training, small: a worker is killed, comes back, and the model is learnt all the same."""

from support.examples import run_example


def test_a_killed_worker_comes_back_and_the_steps_are_all_taken() -> None:
    said = run_example("job_elastic", "--workers", "2").splitlines()
    assert said[:3] == [
        "world 1: elastic-0, elastic-1",
        "elastic-1 was ended by SIGKILL",
        "world 2: elastic-0, elastic-1",
    ]
    assert said[-1].startswith("after 120 steps the loss is 0.")
