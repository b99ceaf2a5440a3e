"""A server that is killed with SIGKILL, again and again, in every phase it can be caught in."""

import sysconfig
import time
from pathlib import Path

from folkmoot.cli.local import LocalRun
from folkmoot.observe.picture import Picture

CONFIG = """
run_id = "killed"
[config]
total_steps = 12
rounds_per_epoch = 4
min_clients = 2
global_batch_size_start = 8
warmup_time = 60
max_round_train_time = 30
round_witness_time = 1
cooldown_time = 30
[model]
max_seq_len = 32
checkpoint = "{folder}/checkpoints"
[model.architecture]
type = "gpt"
vocab_size = 257
layers = 1
heads = 2
width = 32
context = 32
[model.data]
type = "text"
paths = ["{text}"]
"""
PATIENCE = 240.0


def test_a_run_survives_its_server_killed_in_every_phase(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    text = Path(sysconfig.get_path("stdlib")) / "ast.py"
    file.write_text(CONFIG.format(folder=tmp_path, text=text))
    to_hit = {"Warmup", "RoundTrain", "RoundWitness", "Cooldown", "WaitingForMembers"}
    picture = Picture(tmp_path)
    kills = 0
    with LocalRun(file, "killed", tmp_path) as local:
        local.serve()
        for _ in range(2):
            local.join()
        deadline = time.monotonic() + PATIENCE
        while local.running():
            assert time.monotonic() < deadline, f"still {picture.phase}, step {picture.step}"
            picture.update()
            if picture.phase in to_hit and picture.clients:
                to_hit.discard(picture.phase)
                address = local.address
                local.kill_server()
                kills += 1
                local.serve(address)
            time.sleep(0.002)
        picture.update()
        outputs = [local.output(name) for name in local.clients]
    assert picture.phase == "Finished", outputs
    assert kills >= 3
    assert picture.tokens == 12 * 8, "every sample was learnt exactly once"
    assert len({client.hash for client in picture.clients.values()}) == 1
