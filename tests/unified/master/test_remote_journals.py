"""A journal in a shared store, or in a bucket: the same promises as the one on a disk."""

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from folkmoot.authority.store.kv.memory import MemoryStore
from folkmoot.core.job import JobSpec
from folkmoot.exchange.bucket import Bucket
from folkmoot.host.durable import Log
from folkmoot.host.journal import Fenced, JournalError
from folkmoot.unified.jobs import run_job
from folkmoot.unified.master import store_journal
from folkmoot.unified.master.bucket_journal import BucketJournal
from folkmoot.unified.master.open_journal import check_url
from folkmoot.unified.master.store_journal import StoreJournal
from support.servers import S3Server
from unified.master.job_run import ASKING

Open = Callable[..., Log]


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(4)}"


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return (tmp_path / "bucket").as_uri()


@pytest.fixture(params=["store", "folder", "s3"])
def opened(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Gives the journal of a job again and again, as masters one after the other would."""
    if request.param == "store":
        memory = request.getfixturevalue("url")
        return lambda job="job": StoreJournal(memory, job)
    if request.param == "folder":
        folder = request.getfixturevalue("bucket")
        return lambda job="job": BucketJournal(folder, job)
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    s3 = server.new_bucket()
    return lambda job="job": BucketJournal(s3, job)


def test_what_was_appended_is_there_for_the_next_holder(opened: Open) -> None:
    first = opened()
    assert first.records == []
    first.begin(b"state")
    first.append(b"one")
    first.append(b"two")
    second = opened()
    assert second.records == [b"state", b"one", b"two"]
    assert second.epoch > first.epoch
    second.begin(b"later")
    assert opened().records == [b"later"]
    assert opened("other").records == []


def test_a_holder_that_was_replaced_can_record_nothing(opened: Open) -> None:
    old = opened()
    old.begin(b"state")
    new = opened()
    with pytest.raises(Fenced):
        old.append(b"of the old one")
    with pytest.raises(Fenced):
        old.begin(b"of the old one")
    new.begin(*new.records)
    new.append(b"of the new one")
    assert opened().records == [b"state", b"of the new one"]


def test_a_holder_that_never_began_leaves_nothing_to_go_by(opened: Open) -> None:
    opened()
    second = opened()
    assert second.records == []
    second.begin(b"state")
    opened()
    assert opened().records == [b"state"]


def test_large_records_are_kept_in_parts(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_journal, "PART", 10)
    journal = StoreJournal(url, "job")
    records = [b"", b"x" * 10, b"y" * 31]
    journal.begin(*records)
    assert StoreJournal(url, "job").records == records


def test_what_is_missing_or_unreadable_is_an_error(url: str) -> None:
    """P8 in a store."""
    journal = StoreJournal(url, "job")
    journal.begin(b"state", b"one")
    store = MemoryStore(url.removeprefix("memory://"))
    store.delete("jobs/job/1-1/1/0")
    with pytest.raises(JournalError, match="misses record 1"):
        StoreJournal(url, "job")
    store.set("jobs/job/head", b"not a head")
    with pytest.raises(JournalError, match="cannot be read"):
        StoreJournal(url, "job")


def test_what_is_missing_or_unreadable_in_a_bucket_is_an_error(bucket: str) -> None:
    """P8 in a bucket."""
    journal = BucketJournal(bucket, "job")
    journal.begin(b"state")
    journal.append(b"one")
    journal.append(b"two")
    objects = Bucket(bucket)
    second = objects.list("jobs/job")[1].key
    kept = bytes(objects.get(second, 1000))
    objects.delete(second)
    with pytest.raises(JournalError, match="misses entry 3"):
        BucketJournal(bucket, "job")
    objects.put(second, b"not an entry")
    with pytest.raises(JournalError, match="cannot be read"):
        BucketJournal(bucket, "job")
    objects.put(second, kept)
    assert BucketJournal(bucket, "job").records == [b"state", b"one", b"two"]


def test_a_bucket_holds_no_more_than_what_is_needed(bucket: str) -> None:
    journal = BucketJournal(bucket, "job")
    for number in range(5):
        journal.begin(b"state %d" % number)
    assert len(Bucket(bucket).list("jobs/job")) == 1
    assert journal.size == journal.begun == 7


def test_a_put_that_was_answered_to_nobody_is_known_as_ones_own(bucket: str) -> None:
    journal = BucketJournal(bucket, "job")
    journal.begin(b"state")
    put = journal._bucket.put

    def put_twice(key: str, body: bytes, *, create: bool) -> None:
        put(key, body, create=create)
        put(key, body, create=create)

    journal._bucket.put = put_twice  # type: ignore[method-assign,assignment]
    journal.append(b"one")
    assert BucketJournal(bucket, "job").records == [b"state", b"one"]


@pytest.mark.parametrize("wrong", ["/a/folder", "hf://owner/name", "https://host/state", "s4://b"])
def test_what_cannot_hold_a_state_is_told(wrong: str) -> None:
    with pytest.raises(ValueError, match="can hold no job's state"):
        check_url(wrong)


@pytest.mark.parametrize("place", ["url", "bucket"])
def test_a_job_keeps_its_state_there(
    folder: Path, place: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(place)
    spec = JobSpec(name="threads", roles=ASKING)
    outcome = run_job(spec, folder / "job", substrate="inprocess", state=url)
    assert outcome.exit_code == 0
    assert not (folder / "job" / "state").exists()
    journal = StoreJournal if place == "url" else BucketJournal
    assert len(journal(url, "threads").records) > 1
