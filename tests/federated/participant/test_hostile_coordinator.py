"""A participant protects its owner: what a coordinator that wants to harm can get out of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3

from folkmoot.exchange.bucket import Bucket
from folkmoot.federated import Policy, wire
from folkmoot.federated.model_file.layout import encode_header, layout_of
from folkmoot.federated.names import plain_text
from folkmoot.federated.participant.answers import BadAnswer
from folkmoot.federated.participant.bucket import MAP_FROM, ParticipantBucket, WeightsUnavailable
from folkmoot.federated.participant.known import Known
from folkmoot.federated.participant.policy import NotAgreed, load_policy
from support.federation import AGREES
from support.hostile import Counts, HostileCoordinator, meet

#: As much as is mapped and not copied.
MAPPED = np.arange(MAP_FROM // 4, dtype=np.float32)


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def twisted(method: str, **fields: Any) -> Any:
    """Changes these fields of every answer to `method`."""

    def twist(name: str, request: Any, answer: Any) -> None:
        if name == method:
            for field, value in fields.items():
                setattr(answer, field, value)

    return twist


async def test_a_name_that_leads_out_of_the_bucket_overwrites_nothing(tmp_path: Path) -> None:
    treasure = tmp_path / "treasure"
    treasure.write_text("mine")
    bucket = tmp_path / "deep" / "bucket"
    for name in ("../../treasure", "../../../treasure", "global", "", "a/b", "..", "x" * 300):
        hostile = HostileCoordinator(bucket, twisted("Rendezvous", participant_id=name))
        with pytest.raises(BadAnswer, match="no name for a participant"):
            await meet(hostile, AGREES)
    assert treasure.read_text() == "mine"
    assert below(tmp_path) == [
        "deep",
        "deep/bucket",
        "deep/bucket/1",
        "deep/bucket/1/global",
        "treasure",
    ]


async def test_a_bucket_that_nobody_agreed_to_is_not_touched(tmp_path: Path) -> None:
    hostile, one = HostileCoordinator(tmp_path / "elsewhere"), Counts()
    before = below(tmp_path)
    with pytest.raises(NotAgreed, match="--allow-bucket"):
        await meet(hostile, Policy(buckets=(str(tmp_path / "else"), "s3://models")), one)
    assert below(tmp_path) == before
    assert one.trained == 0


async def test_a_bucket_that_was_agreed_to_is_used(tmp_path: Path) -> None:
    hostile, one = HostileCoordinator(tmp_path / "bucket"), Counts()
    await meet(hostile, Policy(buckets=(str(tmp_path),)), one)
    assert one.trained == 1


@pytest.mark.parametrize(
    ("get", "put"),
    [
        ("http://169.254.169.254/1/global", "http://169.254.169.254/1/{id}"),
        ("http://models.example/1/global", "http://models.example/1/another"),
        ("http://models.example/2/global", "http://models.example/1/{id}"),
        ("http://models.example/1/global", "http://models.example.evil/1/{id}"),
        ("http://models.example@evil/1/global", "http://models.example/1/{id}"),
        ("http://models.example/x/../../1/global", "http://models.example/1/{id}"),
        ("file:///etc/1/global", "http://models.example/1/{id}"),
    ],
)
async def test_signed_urls_lead_only_where_we_agreed_to(tmp_path: Path, get: str, put: str) -> None:
    def twist(method: str, request: Any, answer: Any) -> None:
        if method == "Rendezvous":
            answer.bucket = ""  # who signs URLs tells no bucket
        if method == "StartTrainingRound":
            answer.get_url = get
            answer.put_url = put.format(id=request.proof.public_key.hex())

    hostile, one = HostileCoordinator(tmp_path / "bucket", twist), Counts()
    with pytest.raises(NotAgreed, match=r"signed URL|read from and written to"):
        await meet(hostile, Policy(buckets=("http://models.example",)), one)
    assert one.trained == 0


async def test_the_first_coordinator_of_a_run_is_the_only_one(tmp_path: Path) -> None:
    key = str(tmp_path / "mine.key")
    first = HostileCoordinator(tmp_path / "bucket")
    await meet(first, AGREES, identity=key)
    another, one = HostileCoordinator(tmp_path / "bucket"), Counts()
    with pytest.raises(NotAgreed, match="remembers"):
        await meet(another, AGREES, one, identity=key)
    assert one.trained == 0
    given = Policy(buckets=("all",), coordinator=another.identity.public.hex())
    await meet(another, given, one, identity=key)
    assert one.trained == 1


async def test_a_given_key_is_the_only_one(tmp_path: Path) -> None:
    hostile = HostileCoordinator(tmp_path / "bucket")
    with pytest.raises(NotAgreed, match="you gave"):
        await meet(hostile, Policy(buckets=("all",), coordinator="ab" * 32))


async def test_an_answer_to_another_request_is_not_taken(tmp_path: Path) -> None:
    """Somebody on the line has true answers of the coordinator, but not its key."""
    hostile, one, recorded = HostileCoordinator(tmp_path / "bucket"), Counts(), {}
    seal = hostile.sealing

    def replayed(identity: Any, method: str, request: Any, answer: Any) -> Any:
        sealed = seal(identity, method, request, answer)
        if method != "StartTrainingRound":
            return sealed
        return recorded.setdefault("first", sealed)

    def unsealed(identity: Any, method: str, request: Any, answer: Any) -> Any:
        return answer

    hostile.sealing = unsealed
    with pytest.raises(NotAgreed, match="not sealed"):
        await meet(hostile, AGREES)
    hostile.sealing = replayed
    await meet(hostile, AGREES)
    hostile.ended.clear()
    with pytest.raises(NotAgreed, match="does not fit"):
        await meet(hostile, AGREES, one)
    assert one.trained == 0


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("Rendezvous", {"session": b"short"}),
        ("Rendezvous", {"participant_id": "ab" * 32}),
        ("Rendezvous", {"reply": 7}),
        ("Rendezvous", {"state": 17}),
        ("Heartbeat", {"state": 17}),
        ("Heartbeat", {"round": -1}),
        ("StartTrainingRound", {"round": 2}),
        ("StartTrainingRound", {"epochs": -1}),
        ("StartTrainingRound", {"global_digest": b"x"}),
        ("StartTrainingRound", {"initial": True}),
        ("StartTrainingRound", {"get_url": "http://x/1/global"}),
    ],
)
async def test_an_answer_that_makes_no_sense_trains_nothing(
    tmp_path: Path, method: str, fields: Any
) -> None:
    hostile, one = HostileCoordinator(tmp_path / "bucket", twisted(method, **fields)), Counts()
    with pytest.raises(BadAnswer, match="cannot be used"):
        await meet(hostile, AGREES, one)
    assert (one.trained, one.made_first) == (0, 0)


@pytest.mark.parametrize("fields", [{"state": 17}, {"round": -1}])
async def test_news_that_make_no_sense_end_our_part(tmp_path: Path, fields: Any) -> None:
    def twist(name: str, request: Any, answer: Any) -> None:
        if name == "EndTrainingRound":
            answer.news.CopyFrom(wire.HeartbeatResponse(**fields))

    one = Counts()
    with pytest.raises(BadAnswer, match="cannot be used"):
        await meet(HostileCoordinator(tmp_path / "bucket", twist), AGREES, one)
    assert one.trained == 1


async def test_the_task_that_comes_with_news_is_looked_at_as_well(tmp_path: Path) -> None:
    def twist(name: str, request: Any, answer: Any) -> None:
        if name == "EndTrainingRound":
            task = wire.StartTrainingRoundResponse(round=2, epochs=-1, global_digest=bytes(32))
            told = {"state": wire.STATE["ROUND"], "round": 2, "expected": True, "task": task}
            answer.news.CopyFrom(wire.HeartbeatResponse(**told))

    one = Counts()
    with pytest.raises(BadAnswer, match="epochs are not negative"):
        await meet(HostileCoordinator(tmp_path / "bucket", twist), AGREES, one)
    assert one.trained == 1


@pytest.mark.parametrize(
    ("policy", "fields", "why"),
    [
        (Policy(buckets=("all",), masking=True), {}, "without masks"),
        (Policy(buckets=("all",), most_epochs=5), {"epochs": 6}, "most_epochs"),
    ],
)
async def test_without_what_its_owner_asks_for_nothing_is_trained(
    tmp_path: Path, policy: Policy, fields: Any, why: str
) -> None:
    twist = twisted("StartTrainingRound", **fields)
    hostile, one = HostileCoordinator(tmp_path / "bucket", twist), Counts()
    with pytest.raises(NotAgreed, match=why):
        await meet(hostile, policy, one)
    assert one.trained == 0


async def test_rounds_are_counted_over_all_lives(tmp_path: Path) -> None:
    key, policy, one = str(tmp_path / "k"), Policy(buckets=("all",), most_rounds=2), Counts()
    hostile = HostileCoordinator(tmp_path / "bucket")
    for _ in range(2):
        hostile.ended.clear()
        await meet(hostile, policy, one, identity=key)
    hostile.ended.clear()
    with pytest.raises(NotAgreed, match="most_rounds"):
        await meet(hostile, policy, one, identity=key)
    assert one.trained == 2


async def test_a_model_larger_than_agreed_is_not_read(tmp_path: Path) -> None:
    hostile, one = HostileCoordinator(tmp_path / "bucket"), Counts()
    asked: list[int] = []

    def twist(method: str, request: Any, answer: Any) -> None:
        if method == "StartTrainingRound":
            asked.append(1)
            if len(asked) > 1:  # it came to nothing once
                hostile.ended.set()

    hostile.twist = twist
    await meet(hostile, Policy(buckets=("all",), most_bytes=10), one)
    assert one.trained == 0


def test_a_model_in_a_shared_folder_is_mapped_up_to_what_was_agreed(tmp_path: Path) -> None:
    body = encode_header(layout_of({"w": MAPPED})) + MAPPED.tobytes()
    (tmp_path / "1").mkdir()
    (tmp_path / "1/global").write_bytes(body)
    asked, digest = Bucket(str(tmp_path)), blake3(body).digest()
    found = ParticipantBucket(asked, len(body)).read_global(1, digest)
    assert found["w"].tobytes() == MAPPED.tobytes()
    with pytest.raises(WeightsUnavailable, match=f"{len(body)} bytes; at most {len(body) - 1} are"):
        ParticipantBucket(asked, len(body) - 1).read_global(1, digest)


def test_a_policy_is_a_file_or_arguments(tmp_path: Path) -> None:
    file = tmp_path / "participant.toml"
    file.write_text('masking = true\nbuckets = ["s3://models"]\nmost_rounds = 10\n')
    assert load_policy(file) == Policy(masking=True, buckets=("s3://models",), most_rounds=10)
    file.write_text('coordinator = "me"\n')
    with pytest.raises(ValueError, match="64 hex digits"):
        load_policy(file)
    with pytest.raises(ValueError, match="most_epochs"):
        Policy(most_epochs=-1).check()


def test_a_spoiled_memory_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "k.known.json").write_text("{")
    with pytest.raises(ValueError, match="put it back"):
        Known.beside(str(tmp_path / "k"), "run")


def test_a_strangers_text_cannot_write_on_the_terminal() -> None:
    assert plain_text("a\x1b[2J\nb") == "a [2J b"
    assert len(plain_text("x" * 10_000)) < 600
