"""Client processes that are killed, stopped and started in every phase. The models stay one."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from faults.live import PATIENCE, live, write_config

PHASES = ["Warmup", "RoundTrain", "RoundWitness", "Cooldown"]


@pytest.mark.faults
def test_a_client_killed_in_training_comes_back_with_the_model_of_its_peers(
    tmp_path: Path,
) -> None:
    with live(tmp_path, clients=3, steps=16, rounds=5) as run:
        run.until(lambda: run.step() >= 2, "training")
        run.kill("client-1")
        run.until(lambda: run.all("server", "ClientRemoved"), "its removal")
        run.rejoin("client-1")
        loaded = run.until(
            lambda: [e for e in run.all("client-1", "ModelLoaded") if e.epoch > 0], "a model"
        )
        assert loaded[0].source == "peers"
        run.finish()


@pytest.mark.faults
def test_a_run_on_solana_goes_on_when_one_is_killed_and_another_joins_late(tmp_path: Path) -> None:
    with live(tmp_path, clients=3, solana=True, steps=24, rounds=6) as run:
        run.until(lambda: run.step() >= 2, "training")
        run.kill("client-1")
        run.until(lambda: run.all("server", "ClientRemoved"), "its removal")
        late = run.join()
        loaded = run.until(lambda: run.all(late, "ModelLoaded"), "a model")
        assert loaded[0].source == "peers"
        run.finish()
        assert run.all(late, "ShareTrained")


def test_ctrl_c_of_a_client_tells_the_run_and_leaves(tmp_path: Path) -> None:
    with live(tmp_path, clients=3, steps=12, rounds=20) as run:
        run.until(lambda: run.step() >= 2, "training")
        leaving = run.clients["client-2"]
        leaving.send_signal(signal.SIGINT)
        assert leaving.wait(PATIENCE) == 0, run.output("client-2")
        assert run.output("client-2").endswith("left")
        removed = run.until(lambda: run.all("server", "ClientRemoved"), "its removal")
        assert [e.why for e in removed] == ["Withdrew"]
        assert run.all("client-2", "Ended")[-1].reason == "left"
        run.finish()


def up(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "folkmoot", "up", "run.toml", "--clients=2", "--folder=out"]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


@pytest.mark.faults
def test_ctrl_c_of_up_stops_everything_and_up_goes_on_from_there(tmp_path: Path) -> None:
    # Long enough not to be over when Ctrl-C comes, a moment after the first loss is shown.
    write_config(tmp_path, clients=2, steps=1000, rounds=500)
    running = up(tmp_path)
    assert running.stdout is not None
    early = []
    for line in running.stdout:
        early.append(line)
        if ", loss " in line:
            break
    assert running.poll() is None, "".join(early)
    os.killpg(running.pid, signal.SIGINT)
    said = running.communicate(timeout=PATIENCE)[0]
    assert running.returncode == 0, said
    assert "stopping; run the same command again" in said
    for name in ("server", "client-1", "client-2"):
        ended = (tmp_path / "out" / name / "output.txt").read_text().splitlines()[-1]
        assert ended.endswith("left") or ended.startswith("stopped"), ended
    again = up(tmp_path)
    said = again.communicate(timeout=PATIENCE)[0]
    assert again.returncode == 0, said
    assert "Finished at step 1000 of 1000" in said


@pytest.mark.faults
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_killed_and_restarted_in_any_phase(tmp_path: Path, phase: str) -> None:
    with live(tmp_path) as run:
        run.until(lambda: run.phase == phase, phase)
        run.kill("client-2")
        run.rejoin("client-2")
        run.finish()


@pytest.mark.faults
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_stopped_in_any_phase_falls_silent_and_comes_back(
    tmp_path: Path, phase: str
) -> None:
    with live(tmp_path, steps=60) as run:
        run.until(lambda: run.phase == phase, phase)
        run.pause("client-3")
        run.until(lambda: run.all("server", "ClientRemoved"), "its removal")
        run.wake("client-3")
        run.finish()
        assert run.clients["client-3"].returncode == 0


@pytest.mark.faults
@pytest.mark.parametrize("phase", ["WaitingForMembers", *PHASES])
def test_a_client_that_is_started_in_any_phase_gets_in(tmp_path: Path, phase: str) -> None:
    with live(tmp_path, clients=2, steps=600, rounds=40) as run:
        # Once both witnesses were heard, RoundWitness is over as it begins: it is only told of.
        run.until(lambda: run.phase == phase or run.was_in(phase), phase)
        late = run.join()
        run.finish()
        assert run.all(late, "RoundLearnt")


@pytest.mark.faults
def test_when_all_clients_are_gone_new_ones_go_on_from_storage(tmp_path: Path) -> None:
    with live(tmp_path, clients=2, rounds=6) as run:
        run.until(lambda: run.all("server", "CheckpointStored"), "a checkpoint")
        run.until(lambda: run.all("server", "EpochStarted")[-1].epoch == 1, "another epoch")
        for name in list(run.clients):
            run.kill(name)
        new = [run.join(), run.join()]
        run.until(lambda: all(run.all(name, "ModelLoaded") for name in new), "models")
        assert [run.all(name, "ModelLoaded")[0].source for name in new] == ["storage"] * 2
        assert run.all("server", "Rewound")
        for name in ("client-1", "client-2"):
            run.told[name] = []  # what they learnt last was lost with them
        run.finish()
