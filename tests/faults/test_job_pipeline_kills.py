"""A running pipeline, whose workers and whose holder of channels are killed from outside."""

import os
import signal
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from folkmoot.host.event_log import LogReader, records_in
from folkmoot.unified.jobs import run_job
from folkmoot.unified.master import events
from folkmoot.unified.master.home import JobOutcome
from support.examples import EXAMPLES

FILES = 40


@pytest.mark.faults
@pytest.mark.parametrize("substrate", ["local", "ray"])
def test_the_holder_of_the_channels_and_workers_are_killed(
    substrate: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("ray_cluster") if substrate == "ray" else ""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLES), *sys.path]))
    import job_pipeline as pipeline

    job = pipeline.make_job(FILES, tmp_path, dies_at=0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_job, job, tmp_path / "job", substrate, address)
        reader = LogReader(tmp_path / "job" / "events.jsonl", records_in(events))
        pids = dict[str, int]()
        for number, name in enumerate(("channels-0", "tokenizer-1", "channels-0", "trainer-0"), 1):
            wait_for_windows(pipeline, tmp_path / "model", 1500 * number, running)
            for entry in reader.new():
                if isinstance(entry.record, events.ActorCreated):
                    pids[entry.record.actor] = entry.record.pid
            os.kill(pids[name], signal.SIGKILL)
        assert running.result(240).exit_code == 0
    counts, _ = pipeline.load(tmp_path / "model")
    assert (counts == pipeline.counted_directly(FILES)).all()
    died = pipeline.deaths(tmp_path / "job")
    assert died == ["channels-0", "channels-0", "tokenizer-1", "trainer-0"]


def wait_for_windows(
    pipeline: object, model: Path, count: int, running: Future[JobOutcome]
) -> None:
    """Until the trainer has learned from so many."""
    while len(pipeline.load(model)[1]) < count:  # type: ignore[attr-defined]
        assert not running.done(), running.result()
        running_event(running)


def running_event(running: Future[JobOutcome]) -> None:
    try:
        running.exception(0.01)
    except TimeoutError:
        return
