"""Both ends of a request: a stream with one question and its answer, or with pieces of content.

Here a stranger's bytes become typed frames. A stream that stalls, breaks off or is cancelled costs
that request only; bytes that break the protocol end the connection (`Malformed` goes up to the
link).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from iroh import BiStream, IrohError

from folkmoot.core.content import PIECE, piece_count
from folkmoot.exchange.peer import wire
from folkmoot.exchange.peer.blob_store import BlobStore
from folkmoot.exchange.peer.config import PeerConfig
from folkmoot.exchange.peer.describe_error import describe_error
from folkmoot.exchange.peer.link import Link, read_frame, time_for
from folkmoot.exchange.peer.rpc import Answers, CallRefused, NoAnswer, answer

log = logging.getLogger(__name__)
CANCELLED = 1
"""The stream's error code when one side no longer wants it."""


async def serve(
    link: Link, stream: BiStream, store: BlobStore, answers: Answers, config: PeerConfig
) -> None:
    """Answer one request of a member."""
    try:
        stall = config.stall
        body = await read_frame(stream.recv(), config.call_limit, stall, wait=stall)
        request = wire.decode_request(body)
        if isinstance(request, wire.Get):
            await _send_content(stream, request, store, config)
        else:
            reply = await _reply(link.peer, request, answers, config)
            async with asyncio.timeout(time_for(len(reply), config.stall)):
                await stream.send().write_all(reply)
        await stream.send().finish()
    except TimeoutError:
        await _abandon(stream)
    except IrohError:
        pass  # the asker went away


async def _send_content(
    stream: BiStream, get: wire.Get, store: BlobStore, config: PeerConfig
) -> None:
    held = store.find(get.name)
    if held is None:
        await stream.send().write_all(wire.encode(wire.RefusedReply("it is not here", retry=True)))
        return
    outline = held.hashes if get.outline else b""
    await stream.send().write_all(wire.encode(wire.Found(len(held.data), outline)))
    for index in range(get.start, min(get.stop, piece_count(len(held.data)))):
        async with asyncio.timeout(time_for(PIECE, config.stall)):
            await stream.send().write_all(held.piece(index))


async def _reply(asker: bytes, call: wire.Call, answers: Answers, config: PeerConfig) -> bytes:
    try:
        async with asyncio.timeout(config.answer_time):
            payload = await answer(answers, asker, call.name, call.payload)
        reply = wire.encode(wire.Answer(payload))
        if len(reply) > config.call_limit:
            raise CallRefused(f"the answer has {len(reply)} bytes, over the limit")
    except CallRefused as refusal:
        return wire.encode(wire.RefusedReply(str(refusal)[:400]))
    except TimeoutError:
        return wire.encode(wire.RefusedReply("it took too long"))
    except Exception:
        log.exception("answering %r failed", call.name)
        return wire.encode(wire.RefusedReply("it failed"))
    return reply


async def _abandon(stream: BiStream) -> None:
    for half in (stream.send().reset, stream.recv().stop):
        with suppress(IrohError):  # it may be closed already
            await half(CANCELLED)


@asynccontextmanager
async def request(link: Link, frame: wire.Frame) -> AsyncIterator[BiStream]:
    """A stream on which `frame` was sent; abandoned when the block ends early."""
    stream = await link.open()
    try:
        await stream.send().write_all(wire.encode(frame))
        await stream.send().finish()
        yield stream
    except BaseException:
        await asyncio.shield(_abandon(stream))
        raise


async def call(link: Link, name: str, payload: bytes, seconds: float, limit: int) -> bytes:
    """The encoded answer of a member; raises CallRefused or NoAnswer."""
    try:
        async with asyncio.timeout(seconds), request(link, wire.Call(name, payload)) as stream:
            body = await read_frame(stream.recv(), limit, seconds)
            reply: wire.CallReply = wire.decode_call_reply(body)
    except TimeoutError as error:
        raise NoAnswer(f"no answer to {name!r} within {seconds:g} s") from error
    except IrohError as error:
        raise NoAnswer(f"the connection broke: {describe_error(error)}") from error
    except wire.Malformed as error:
        raise NoAnswer(f"it sent {error}") from error
    if isinstance(reply, wire.RefusedReply):
        raise CallRefused(reply.reason)
    return reply.payload
