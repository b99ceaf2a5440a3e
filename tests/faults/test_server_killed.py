"""A server that is killed with SIGKILL, again and again, in every phase it can be caught in."""

from pathlib import Path

from faults.live import live
from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import Coordinator, Phase, decode_run

STEPS, BATCH = 12, 8


def kept(folder: Path) -> Coordinator:
    """What the journal holds. The log may miss what happened just before a kill; it may not."""
    keeper = Keeper(decode_run((folder / "run.toml").read_text()), folder / "server/run.journal")
    keeper.close()
    return keeper.state


def test_a_run_survives_its_server_killed_in_every_phase(tmp_path: Path) -> None:
    to_hit = {"Warmup", "RoundTrain", "RoundWitness", "Cooldown", "WaitingForMembers"}
    kills = 0
    with live(tmp_path, clients=2, steps=STEPS, rounds=4, train_time=30) as run:
        run.until(lambda: run.all("server", "ClientJoined"), "a client")
        while run.until(lambda: run.phase in to_hit or not run.running(), "a phase to hit"):
            if not run.running():
                break
            to_hit.discard(run.phase)
            address = run.address
            run.kill("server")
            kills += 1
            run.serve(address)
        run.finish()
    assert kills >= 3
    state = kept(tmp_path)
    assert state.phase is Phase.Finished
    learnt = STEPS * BATCH * state.run.model.max_seq_len
    assert state.progress.tokens == learnt, "every sample was learnt exactly once"
