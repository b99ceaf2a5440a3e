"""A node that breaks HTTP, floods or hangs: another one is asked, or a sentence is said."""

import asyncio
import ssl
from pathlib import Path

import pytest

from authority.solana.localnet_run import on_chain
from authority.solana.lying_node import (
    Raw,
    goes_on,
    raw_node,
    says,
)
from folkmoot.authority.solana import post
from support.certificates import LoopbackAuthority


async def forever(writer: asyncio.StreamWriter, piece: bytes, seconds: float = 0.0) -> None:
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(seconds)


def answering(*pieces: bytes) -> Raw:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.writelines(pieces)
        await writer.drain()

    return answer


def endless(begin: bytes, piece: bytes, seconds: float = 0.0) -> Raw:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        await forever(writer, piece, seconds)

    return answer


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
# What goes over the line, and what is said about it.
RAW: dict[str, tuple[Raw, str]] = {
    "hangs up": (answering(), "hung up"),
    "hangs up in the middle": (answering(OK, b"Content-Length: 9\r\n\r\n{"), "hung up"),
    "another protocol": (answering(b"SSH-2.0-x\r\n\r\n"), "does not speak HTTP"),
    "an error": (answering(b"HTTP/1.1 503 \x1b[2Jbusy\r\n\r\n"), "HTTP 503"),
    "a redirect": (answering(b"HTTP/1.1 302 Found\r\nLocation: http://a/\r\n\r\n"), "HTTP 302"),
    "no length": (answering(OK, b"Content-Length: x\r\n\r\n"), "how long its answer is"),
    "less than nothing": (answering(OK, b"Content-Length: -1\r\n\r\n"), "more than"),
    "too much": (answering(OK, b"Content-Length: 99999999999\r\n\r\n"), "more than"),
    "too large a chunk": (answering(CHUNKED, b"fffffffff\r\n"), "more than"),
    "no chunk": (answering(CHUNKED, b"x\r\n"), "how long its answer is"),
    "chunks of a byte": (answering(CHUNKED, b"1\r\nx\r\n" * 5000), "more than"),
    "chunks without end": (endless(CHUNKED, b"8000\r\n" + b" " * 0x8000 + b"\r\n"), "more than"),
    "an answer without end": (endless(OK + b"\r\n", b" " * 65536), "more than"),
    "a head without end": (endless(OK, b"x" * 9000), "too long"),
    "a slow head": (endless(OK, b"a: b\r\n", 0.05), "no whole answer"),
    "a slow answer": (endless(OK + b"Content-Length: 999\r\n\r\n", b" ", 0.05), "no whole answer"),
    "go on, go on": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "HTTP 100"),
    "nothing": (endless(b"", b"", 0.05), "no whole answer"),
}


async def test_who_does_not_answer_as_http_does_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_chain() as net:
        for name, (answer, why) in RAW.items():
            slow = why == "no whole answer"
            monkeypatch.setattr(post, "TIMEOUT", 1.0 if slow else 60.0)
            async with raw_node(answer) as url:
                assert why in await says(url), name
        monkeypatch.undo()
        async with raw_node(RAW["a redirect"][0]) as first, raw_node(RAW["too much"][0]) as second:
            await goes_on(net, first, second)


async def test_an_answer_without_end_is_not_kept() -> None:
    written = 0

    async def pour(writer: asyncio.StreamWriter) -> None:
        nonlocal written
        writer.write(OK + b"\r\n")
        while True:
            writer.write(b" " * 65536)
            await writer.drain()
            written += 65536

    async with raw_node(pour) as url:
        with pytest.raises(OSError, match="more than"):
            await post.post(url, b"{}")
    # What the operating system keeps of a connection is a few megabytes.
    assert written < post.ANSWER_MAX + 32 * 1024 * 1024


async def test_an_answer_in_chunks_or_without_a_length_is_read() -> None:
    async with raw_node(answering(CHUNKED, b"3;x=y\r\n{} \r\n1\r\n \r\n0\r\n\r\n")) as url:
        assert await post.post(url, b"{}") == b"{}  "
    async with raw_node(answering(OK, b"\r\n", b"{", b"}")) as url:
        assert await post.post(url, b"{}") == b"{}"


async def test_a_node_is_known_by_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = LoopbackAuthority(tmp_path, "ca")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*ca.sign("node"))
    async with raw_node(answering(OK, b"Content-Length: 2\r\n\r\n{}"), tls) as url:
        assert "certificate is not one that this machine trusts" in await says(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(ca.file))
        post.trusted.cache_clear()
        assert await post.post(url, b"{}") == b"{}"
    post.trusted.cache_clear()


async def test_who_is_not_there_is_said_to_be_so() -> None:
    assert "nobody listens there" in await says("http://127.0.0.1:9")
    assert "no such host" in await says("http://nowhere.invalid:9")
