"""Objects of S3 written over our own connections: where a signed URL says all there is to say."""

import os
from collections.abc import Iterator
from typing import Any

import obstore
import pytest

from folkmoot.exchange.bucket import AccessDenied, Bucket
from support.servers import S3Server

BODY = os.urandom(3 << 20)


@pytest.fixture
def by_the_client(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys that the store's own client wrote."""
    keys, put = [], obstore.put

    def watched(store: Any, key: str, *body: Any, **how: Any) -> Any:
        keys.append(key)
        return put(store, key, *body, **how)

    monkeypatch.setattr(obstore, "put", watched)
    return keys


def breaks_off() -> Iterator[bytes]:
    yield BODY[: 1 << 20]
    raise OSError("nobody wants it any more")


def test_over_tls_a_body_goes_over_our_own_connection(
    s3_over_tls: S3Server, by_the_client: list[str]
) -> None:
    bucket = Bucket(s3_over_tls.new_bucket(), s3_over_tls.options)
    bucket.put("whole", BODY)
    assert bucket.put_direct("in pieces", len(BODY), lambda: [BODY[:99], memoryview(BODY)[99:]])
    assert bucket.get("whole", len(BODY)) == bucket.get("in pieces", len(BODY)) == BODY
    assert by_the_client == []


def test_one_of_many_creators_is_the_stores_own_client(
    s3_over_tls: S3Server, by_the_client: list[str]
) -> None:
    bucket = Bucket(s3_over_tls.new_bucket(), s3_over_tls.options)
    bucket.put("once", BODY, create=True)
    assert by_the_client == ["once"]


def test_without_tls_a_body_is_signed(s3_server: S3Server, by_the_client: list[str]) -> None:
    bucket = Bucket(s3_server.new_bucket(), s3_server.options)
    assert not bucket.put_direct("key", len(BODY), lambda: [BODY])
    bucket.put("key", BODY)
    assert by_the_client == ["key"]


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        ({"aws_server_side_encryption": "AES256"}, {}),
        ({}, {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"}),
        ({"sse_bucket_key_enabled": "true"}, {}),
        ({"aws_checksum_algorithm": "SHA256"}, {}),
        ({"unsigned_payload": "false"}, {}),
    ],
)
def test_what_is_asked_of_every_body_is_asked_of_each(
    s3_over_tls: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    environment: dict[str, str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    bucket = Bucket(s3_over_tls.new_bucket(), {**s3_over_tls.options, **options})
    assert not bucket.put_direct("key", len(BODY), lambda: [BODY])
    assert bucket.list() == []


def test_of_a_body_that_breaks_off_there_is_nothing(s3_over_tls: S3Server) -> None:
    bucket = Bucket(s3_over_tls.new_bucket(), s3_over_tls.options)
    bucket.put("old", b"model")
    for key in ("old", "new"):
        assert not bucket.put_direct(key, len(BODY), breaks_off)
    assert [found.key for found in bucket.list()] == ["old"]
    assert bytes(bucket.get("old", 100)) == b"model"


def test_who_may_not_write_is_told_so(s3_over_tls: S3Server) -> None:
    wrong = {**s3_over_tls.options, "secret_access_key": "wrong"}
    bucket = Bucket(s3_over_tls.new_bucket(), wrong, patience=5)
    assert not bucket.put_direct("key", len(BODY), lambda: [BODY])
    with pytest.raises(AccessDenied, match="key"):
        bucket.put("key", BODY)
