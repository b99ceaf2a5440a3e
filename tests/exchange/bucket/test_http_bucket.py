"""A bucket behind plain HTTP: read by ranges, retried, never written."""

import os

import pytest

from folkmoot.exchange.bucket import (
    AccessDenied,
    Bucket,
    BucketError,
    Missing,
    NotPossible,
    TooLarge,
    TooShort,
    open_object,
)
from support.servers import FileServer

CONTENT = os.urandom(300_000)


@pytest.fixture
def served(file_server: FileServer) -> FileServer:
    (file_server.folder / "train.bin").write_bytes(CONTENT)
    return file_server


def test_a_range_asks_for_no_more_than_it_needs(served: FileServer):
    source = open_object(f"{served.url}/train.bin")
    assert source.size() == len(CONTENT)
    assert bytes(source.read(1000, 50)) == CONTENT[1000:1050]
    assert served.requests == ["HEAD", "GET bytes=1000-1049"]


def test_near_ranges_share_a_request_and_far_ones_do_not(served: FileServer):
    source = open_object(f"{served.url}/train.bin")
    ranges = [(250_000, 10), (0, 10), (1000, 10)]
    assert [bytes(r) for r in source.read_many(ranges)] == [CONTENT[s : s + 10] for s, _ in ranges]
    assert sorted(served.requests) == ["GET bytes=0-1009", "GET bytes=250000-250009"]


@pytest.mark.parametrize("faults", [["503"], ["cut"], ["500", "cut", "502"]])
def test_a_passing_fault_is_retried(served: FileServer, faults: list[str]):
    served.faults += faults
    assert bytes(open_object(f"{served.url}/train.bin").read(7, 9000)) == CONTENT[7:9007]
    served.faults += faults
    many = open_object(f"{served.url}/train.bin").read_many([(7, 9000), (200_000, 5)])
    assert [bytes(piece) for piece in many] == [CONTENT[7:9007], CONTENT[200_000:200_005]]
    served.faults += faults
    assert bytes(Bucket(served.url).get("train.bin", 1 << 20)) == CONTENT


def test_a_lasting_fault_is_an_error_that_names_the_object(served: FileServer):
    served.faults += ["503"] * 1000
    with pytest.raises(BucketError, match=r"\[train.bin\].*503"):
        open_object(f"{served.url}/train.bin", patience=0.5).read(0, 10)


def test_what_a_web_server_refuses_is_typed(served: FileServer):
    bucket = Bucket(served.url)
    with pytest.raises(Missing):
        bucket.get("nothing", 10)
    with pytest.raises(TooLarge):
        bucket.get("train.bin", 10)
    with pytest.raises(TooShort, match="ends at byte 300000"):
        bucket.get_range("train.bin", 299_999, 2)
    with pytest.raises(TooShort, match="ends at byte 300000"):
        bucket.get_range("train.bin", 400_000, 2)
    with pytest.raises(TooShort):
        bucket.get_ranges("train.bin", [(0, 1), (299_999, 2)])
    served.faults += ["403"]
    with pytest.raises(AccessDenied):
        bucket.get("train.bin", 10)


def test_it_cannot_be_written_or_listed(served: FileServer):
    bucket = Bucket(served.url)
    for call in (lambda: bucket.put("x", b"1"), lambda: bucket.delete("x"), bucket.list):
        with pytest.raises(NotPossible, match="plain HTTP"):
            call()
    assert served.requests == []
