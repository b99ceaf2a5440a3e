"""What a run looked like, put together from its logs."""

from pathlib import Path

from folkmoot.core.coordinator import messages as m
from folkmoot.host.event_log import EventsMissed
from folkmoot.observe.picture import Picture, PlotMark
from observe.logs_of_a_run import HASH, Writer


def test_what_happened_is_told_in_words(picture: Picture) -> None:
    told = [line.split("s  ", 1)[1] for line in picture.update()]
    assert told == [
        "client aaaaaaaa waits for the next epoch",
        "client bbbbbbbb waits for the next epoch",
        "epoch 0 starts with 2 clients",
        "round 1: 1 samples are owed",
        "client bbbbbbbb removed: Withdrew",
        "rewound from step 2 to 1",
        "checkpoint of step 1 stored at /models/1",
        "client-1 refused a result of bbbbbbbb: too long",
        "client-2 got the model from peers",
    ]
    assert picture.update() == []


def test_the_state_of_a_run_is_that_of_its_last_records(picture: Picture) -> None:
    picture.update()
    assert (picture.phase, picture.epoch, picture.step) == ("Finished", 0, 1)
    assert picture.tokens == 16 + 15
    assert picture.checkpoint == "/models/1"
    assert picture.losses() == [(0, 4.5), (1, 2.5)]
    assert picture.held_out == {1: 2.25}
    assert picture.marks == [PlotMark(1, "a client left")]
    assert picture.seconds == 31.0
    assert picture.unread == 0


def test_each_client_has_its_own_account(picture: Picture) -> None:
    picture.update()
    ana, bo = picture.clients["client-1"], picture.clients["client-2"]
    assert (ana.loss, ana.rounds, ana.sent, ana.received) == (3.0, 2, 900, 800)
    assert (ana.round_sent, ana.round_results, ana.tokens_per_second) == (900, 800, 1200)
    assert (bo.hash, bo.gone, bo.state) == (HASH, True, "ended")


def test_a_run_is_followed_while_it_goes_on(tmp_path: Path) -> None:
    picture = Picture(tmp_path)
    assert picture.update() == []
    tell = Writer(tmp_path / "server" / "events.jsonl")
    tell(m.EpochStarted(0, 3))
    assert "epoch 0 starts with 3 clients" in picture.update()[0]
    tell(m.StateChanged("WaitingForMembers", "Warmup"))
    assert picture.update() == []
    assert picture.phase == "Warmup"


def test_gaps_and_damage_are_told(tmp_path: Path) -> None:
    Writer(tmp_path / "server" / "events.jsonl")(EventsMissed(4))
    damaged = tmp_path / "client-1" / "events.jsonl"
    Writer(damaged)(EventsMissed(2))
    with damaged.open("a") as file:
        file.write("half a li\n")
    picture = Picture(tmp_path)
    first, second = picture.update()
    assert first.endswith("the server's log misses 4 events")
    assert second.endswith("the log of client-1 misses 2 events")
    assert picture.unread == 1


def test_what_was_done_from_outside_is_part_of_the_story(picture: Picture) -> None:
    picture.update()
    picture.note("killed client-1", "killed")
    assert picture.marks[-1] == PlotMark(1, "killed")
    assert picture.update()[0].endswith("killed client-1")
