"""A bucket behaves the same on a folder, in memory and on a real S3 server."""

import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.exchange.bucket import (
    AccessDenied,
    AlreadyExists,
    BrokenOff,
    Bucket,
    BucketError,
    BucketObject,
    Missing,
    NotPossible,
    ObjectInfo,
    TooLarge,
    TooShort,
    open_object,
    reading,
)
from folkmoot.exchange.bucket.direct import Direct, NotGiven
from support.servers import S3Server, serving

BIG = os.urandom(20 << 20)
REPLACED = BIG[::-1]
MANY = 1 << 40


@pytest.fixture
def bucket(any_bucket: Bucket) -> Bucket:
    return any_bucket


def test_what_was_put_comes_back(bucket: Bucket):
    bucket.put("3/global", b"weights")
    assert bytes(bucket.get("3/global", limit=7)) == b"weights"
    assert bucket.size("3/global") == 7
    bucket.put("3/global", b"others")
    assert bytes(bucket.get("3/global", limit=100)) == b"others"


def test_many_are_removed_at_once_and_what_is_gone_stays_gone(bucket: Bucket):
    keys = [f"3/{number}" for number in range(12)]
    for key in keys:
        bucket.put(key, b"weights")
    bucket.delete("3/5")
    bucket.delete_all(keys[:11])
    bucket.delete_all([])
    assert [found.key for found in bucket.list("3")] == keys[11:]


def test_an_empty_object_is_an_object(bucket: Bucket):
    bucket.put("empty", b"")
    assert bytes(bucket.get("empty", limit=0)) == b""


def test_a_body_may_be_bytes_a_file_or_chunks(bucket: Bucket, tmp_path: Path):
    (tmp_path / "body").write_bytes(BIG)
    (tmp_path / "small").write_bytes(b"weights")
    bucket.put("small", tmp_path / "small")
    assert bytes(bucket.get("small", MANY)) == b"weights"
    bucket.put("bytes", BIG)
    bucket.put("view", memoryview(BIG))
    bucket.put("file", tmp_path / "body")
    bucket.put("chunks", (BIG[i : i + (1 << 20)] for i in range(0, len(BIG), 1 << 20)))
    for key in ("bytes", "view", "file", "chunks"):
        assert bytes(bucket.get(key, MANY)) == BIG
        assert b"".join(bucket.stream(key, MANY)) == BIG


def test_an_object_that_is_replaced_while_it_is_read_is_never_a_mixture(bucket: Bucket):
    bucket.put("large", BIG)
    pieces = bucket.stream("large", MANY)
    first = next(pieces)
    bucket.put("large", REPLACED)
    try:
        assert first + b"".join(pieces) == BIG
    except BrokenOff:
        assert bytes(bucket.get("large", MANY)) == REPLACED


def test_a_missing_object_is_named(bucket: Bucket):
    for call in (bucket.size, lambda key: bucket.get(key, 9), lambda k: bucket.get_range(k, 0, 1)):
        with pytest.raises(Missing, match=r"\[7/nobody\]: there is no such object"):
            call("7/nobody")
    with pytest.raises(Missing):
        next(bucket.stream("7/nobody", 9))


def test_an_object_above_the_limit_is_not_read(bucket: Bucket):
    bucket.put("big", b"12345")
    with pytest.raises(TooLarge, match="5 bytes, at most 4"):
        bucket.get("big", limit=4)
    with pytest.raises(TooLarge):
        next(bucket.stream("big", limit=4))


def test_exactly_one_creator_wins(bucket: Bucket):
    outcomes: list[str] = []

    def create(body: bytes) -> None:
        try:
            bucket.put("round", body, create=True)
            outcomes.append(body.decode())
        except AlreadyExists:
            outcomes.append("late")

    threads = [threading.Thread(target=create, args=(f"w{i}".encode(),)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if outcome != "late"]
    assert len(outcomes) == 6
    assert winners == [bytes(bucket.get("round", 9)).decode()]


def test_a_range_is_exact_or_an_error(bucket: Bucket):
    bucket.put("tokens", b"0123456789")
    assert bytes(bucket.get_range("tokens", 3, 4)) == b"3456"
    assert bytes(bucket.get_range("tokens", 0, 10)) == b"0123456789"
    for start, length in ((8, 3), (10, 1), (50, 5)):
        with pytest.raises(TooShort, match="ends at byte 10"):
            bucket.get_range("tokens", start, length)
    with pytest.raises(NotPossible, match="not a range"):
        bucket.get_range("tokens", -1, 5)


def test_list_is_by_folder_and_sorted(bucket: Bucket):
    for key in ("2/b", "2/a", "20/a", "1/x/y"):
        bucket.put(key, b"1")
    assert [entry.key for entry in bucket.list("2")] == ["2/a", "2/b"]
    assert [entry.key for entry in bucket.list()] == ["1/x/y", "2/a", "2/b", "20/a"]
    assert bucket.list("3") == []


def test_delete_twice_is_fine(bucket: Bucket):
    bucket.put("x", b"1")
    bucket.delete("x")
    bucket.delete("x")
    assert bucket.list() == []


def test_a_writer_that_fails_midway_leaves_nothing(bucket: Bucket):
    def failing() -> Iterator[bytes]:
        yield BIG[: 9 << 20]
        yield BIG[: 9 << 20]
        raise RuntimeError("the network is gone")

    with pytest.raises(RuntimeError, match="network is gone"):
        bucket.put("half", failing())
    with pytest.raises(Missing):
        bucket.size("half")
    assert bucket.list() == []


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/x",
        "a//b",
        "../x",
        "a/../b",
        ".",
        "a/",
        "x#1",
        "a\\b",
        "a\nb",
        "a?b",
        "k" * 901,
        "A:",
        "x/b|",
    ],
)
def test_a_key_that_could_mean_something_else_is_refused(bucket: Bucket, key: str):
    for call in (bucket.size, bucket.delete, lambda k: bucket.put(k, b"1")):
        with pytest.raises(NotPossible, match="a key"):
            call(key)


@settings(max_examples=40)
@given(key=st.text(min_size=1, max_size=40))
def test_no_key_reaches_outside_a_folder(tmp_path_factory: pytest.TempPathFactory, key: str):
    root = tmp_path_factory.mktemp("outside")
    bucket = Bucket(str(root / "bucket"))
    try:
        bucket.put(key, b"1")
    except BucketError:
        pass
    else:
        assert bytes(bucket.get(key, 1)) == b"1"
        assert [entry.key for entry in bucket.list()] == [key]
    assert [path.name for path in root.iterdir()] == ["bucket"]


def test_an_orphaned_staging_file_is_never_an_object(tmp_path: Path):
    bucket = Bucket(tmp_path.as_uri())
    bucket.put("1/a", b"whole")
    (tmp_path / "1" / "a#12345").write_bytes(b"ha")
    assert bucket.list() == [ObjectInfo("1/a", 5)]


def test_a_full_disk_is_an_error_and_leaves_the_old_object(small_disk: Path):
    bucket = Bucket(str(small_disk))
    bucket.put("x", b"old")
    with pytest.raises(BucketError, match="No space left"):
        bucket.put("x", BIG)
    assert bytes(bucket.get("x", 3)) == b"old"
    assert [path.name for path in small_disk.iterdir()] == ["x"]


def test_a_wrong_secret_is_denied(s3_server):
    url = s3_server.new_bucket()
    liar = Bucket(url, {**s3_server.options, "secret_access_key": "wrong"}, patience=5)
    for call in (lambda: liar.put("x", b"1"), lambda: liar.get("x", 9), liar.list):
        with pytest.raises(AccessDenied, match="check the credentials"):
            call()


def test_credentials_may_come_from_the_environment(s3_server, monkeypatch: pytest.MonkeyPatch):
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(s3_server.new_bucket())
    bucket.put("x", b"1")
    assert bucket.size("x") == 1


def test_a_prefix_in_the_url_is_part_of_every_key(s3_server):
    root = s3_server.new_bucket()
    Bucket(f"{root}/runs/one", s3_server.options).put("a", b"1")
    assert Bucket(root, s3_server.options).list() == [ObjectInfo("runs/one/a", 1)]
    assert Bucket(f"{root}/runs/one", s3_server.options).list() == [ObjectInfo("a", 1)]


def test_a_store_that_does_not_answer_is_an_error_after_patience(free_port: int):
    url = "s3://nobody"
    options = {"endpoint": f"http://127.0.0.1:{free_port}", "region": "r",
               "access_key_id": "a", "secret_access_key": "b"}  # fmt: skip
    with pytest.raises(BucketError, match="error sending request") as caught:
        Bucket(url, options, patience=0.3).get("x", 1)
    assert type(caught.value) is BucketError


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "what:ever"])
def test_a_url_of_no_bucket_is_refused(url: str):
    with pytest.raises(NotPossible):
        Bucket(url, {"region": "r"}).size("x")


def test_an_object_is_a_source_of_ranges(bucket: Bucket):
    bucket.put("d/train.bin", b"0123456789")
    source = BucketObject(bucket, "d/train.bin")
    assert source.size() == 10
    assert bytes(source.read(2, 3)) == b"234"
    assert source.name.endswith("/d/train.bin")


def test_open_object_finds_a_file_by_path(tmp_path: Path):
    (tmp_path / "train.bin").write_bytes(b"0123")
    assert bytes(open_object(str(tmp_path / "train.bin")).read(1, 2)) == b"12"
    with pytest.raises(NotPossible, match="names no object"):
        open_object("train.bin")


def test_a_small_object_after_a_large_one_and_a_large_one_after_it(bucket: Bucket):
    bucket.put("large", BIG)
    bucket.put("small", b"weights")
    for key, body in [("small", b"weights"), ("large", BIG), ("large", BIG), ("small", b"weights")]:
        assert bytes(bucket.get(key, MANY)) == body
        assert b"".join(bucket.stream(key, MANY)) == body


class WholeAnswers(http.server.BaseHTTPRequestHandler):
    """An S3 server that gives an object whole when all of it is asked for, as rclone's does."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.send_header("ETag", '"tag"')
        self.send_header("Last-Modified", "Tue, 17 Nov 2026 12:00:00 GMT")
        self.end_headers()
        self.wfile.write(b"weights")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_server_that_gives_a_small_object_whole_is_read():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WholeAnswers)
    known = S3Server(f"http://127.0.0.1:{server.server_port}")
    with serving(server):
        bucket = Bucket("s3://test/models", known.options)
        assert bytes(bucket.get("small", MANY)) == b"weights"
        assert b"".join(bucket.stream("small", MANY)) == b"weights"


class PartsAsWholes(http.server.BaseHTTPRequestHandler):
    """An S3 server whose parts have the status of whole objects, as those of rclone's have."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        first, last = self.headers.get("Range", f"bytes=0-{len(BIG) - 1}")[6:].split("-")
        body = BIG[int(first) : int(last) + 1]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if "Range" in self.headers:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(BIG)}")
        self.send_header("ETag", '"tag"')
        self.send_header("Last-Modified", "Tue, 17 Nov 2026 12:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_part_with_the_status_of_a_whole_object_is_not_taken_for_it():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PartsAsWholes)
    known = S3Server(f"http://127.0.0.1:{server.server_port}")
    with serving(server):
        bucket = Bucket("s3://test/models", known.options)
        assert bytes(bucket.get("large", MANY)) == BIG
        assert b"".join(bucket.stream("large", MANY)) == BIG


class LongParts(PartsAsWholes):
    """An S3 server that has more of an object than there is."""

    def do_GET(self) -> None:
        self.send_response(206)
        self.send_header("Content-Length", "9")
        self.send_header("Content-Range", "bytes 0-8/7")
        self.send_header("ETag", '"tag"')
        self.send_header("Last-Modified", "Tue, 17 Nov 2026 12:00:00 GMT")
        self.end_headers()
        self.wfile.write(b"weights!!")


def test_a_part_that_is_longer_than_its_object_is_not_taken():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), LongParts)
    known = S3Server(f"http://127.0.0.1:{server.server_port}")
    with serving(server):
        bucket = Bucket("s3://test/models", known.options, patience=1)
        with pytest.raises(NotGiven):
            reading.read_direct(bucket._direct, bucket.url, "small", reading.no_room)
        with pytest.raises(BucketError, match="small"):
            bucket.get("small", MANY)


@pytest.mark.parametrize("fast", [0.0, 1e18])
def test_the_rest_of_a_large_object_comes_at_once_or_side_by_side(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, fast: float
):
    monkeypatch.setattr(reading, "FAST", fast)
    bucket = Bucket(s3_server.new_bucket(), s3_server.options)
    bucket.put("large", BIG)
    assert bytes(bucket.get("large", MANY)) == BIG
    assert b"".join(bucket.stream("large", MANY)) == BIG


def replace_before_the_second_part(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    asked, part = [], getattr(owner, name)

    def replaced(*which: Any, **how: Any) -> Any:
        asked.append(which)
        if len(asked) == 2:
            bucket.put("large", REPLACED)
        return part(*which, **how)

    monkeypatch.setattr(owner, name, replaced)


@pytest.mark.parametrize("fast", [0.0, 1e18])
def test_an_object_of_s3_that_is_replaced_between_two_parts_is_the_new_one(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, fast: float
):
    monkeypatch.setattr(reading, "FAST", fast)
    bucket = Bucket(s3_server.new_bucket(), s3_server.options)
    bucket.put("large", BIG)
    replace_before_the_second_part(bucket, monkeypatch, Direct, "part")
    assert bytes(bucket.get("large", MANY)) == REPLACED


def test_behind_a_proxy_an_object_that_is_replaced_between_two_parts_is_the_new_one(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # which the store's own client knows
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    bucket = Bucket(s3_server.new_bucket(), s3_server.options)
    bucket.put("large", BIG)
    replace_before_the_second_part(bucket, monkeypatch, obstore, "get")
    assert bytes(bucket.get("large", MANY)) == REPLACED
