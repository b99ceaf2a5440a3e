"""A journal in a shared store: the same promises as the one on a disk."""

import secrets
from pathlib import Path

import pytest

from folkmoot.authority.store.kv.memory import MemoryStore
from folkmoot.core.job import JobSpec
from folkmoot.host.journal import Fenced, JournalError
from folkmoot.unified.jobs import run_job
from folkmoot.unified.master import store_journal
from folkmoot.unified.master.store_journal import StoreJournal
from unified.master.job_run import role


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(4)}"


def test_what_was_appended_is_there_for_the_next_holder(url: str) -> None:
    first = StoreJournal(url, "job")
    assert (first.epoch, first.records) == (1, [])
    first.begin(b"state")
    first.append(b"one")
    first.append(b"two")
    second = StoreJournal(url, "job")
    assert (second.epoch, second.records) == (2, [b"state", b"one", b"two"])
    second.begin(b"later")
    assert StoreJournal(url, "job").records == [b"later"]
    assert StoreJournal(url, "other").records == []


def test_a_holder_that_was_replaced_can_record_nothing(url: str) -> None:
    old = StoreJournal(url, "job")
    old.begin(b"state")
    new = StoreJournal(url, "job")
    with pytest.raises(Fenced):
        old.append(b"of the old one")
    with pytest.raises(Fenced):
        old.begin(b"of the old one")
    new.begin(*new.records)
    new.append(b"of the new one")
    assert StoreJournal(url, "job").records == [b"state", b"of the new one"]


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


def test_a_job_keeps_its_state_there(folder: Path, url: str) -> None:
    roles = {"adder": role("Adder", total=2, driver=False), "asker": role("Asker")}
    spec = JobSpec(name="threads", roles=roles)
    outcome = run_job(spec, folder / "job", substrate="inprocess", state=url)
    assert outcome.exit_code == 0
    assert not (folder / "job" / "state").exists()
    assert len(StoreJournal(url, "threads").records) > 1
