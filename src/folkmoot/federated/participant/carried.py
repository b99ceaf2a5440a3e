"""Weights over a line to the coordinator, which carries them itself (see `federated/transfer`).

A line that breaks is made anew and goes on where it ended, for as long as the coordinator wants the
weights: when the round is over it says so. Between rounds the line waits for the next one (`call`),
whose model comes with the news. Methods block, on the participant's threads.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import grpc
import numpy as np
from blake3 import blake3

from folkmoot.federated import wire
from folkmoot.federated.model_file.layout import Array, BadModel
from folkmoot.federated.model_file.outgoing import OutgoingModel
from folkmoot.federated.model_file.reader import page_aligned
from folkmoot.federated.names import plain_text
from folkmoot.federated.participant.bucket import Arrays, WeightsUnavailable, decoded
from folkmoot.federated.transfer.frames import (
    MAX_ANSWER,
    MAX_FRAME,
    PIECE,
    Socket,
    encode_frame,
    fill,
    read_frame,
)
from folkmoot.federated.transfer.lines import STALL
from folkmoot.federated.transfer.uploads import TOKEN_BYTES, cut
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.clock import backoff
from folkmoot.host.corked import corked
from folkmoot.host.tls import ClientTls
from folkmoot.host.tls_socket import TlsSocket, client_context

#: A coordinator that started again (its heartbeat gives us its new session), or has too much to do.
PASSING = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class Introduced(Protocol):
    """What we need of a `Connection`: where the coordinator is, and who we are to it."""

    address: str
    tls: ClientTls | None
    weights_port: int
    longest_pause: float

    def signed(self, method: str, request: Any) -> Any:
        """The request, signed for the present session."""

    def checked(self, method: str, request: Any, answer: Any) -> Any:
        """The answer, when it is the coordinator's."""


class CarriedWeights:
    """Reads and writes weights over one line at a time. `close` may be called from elsewhere."""

    def __init__(self, known: Introduced, max_object: int = 8 << 30) -> None:
        self._known, self._max_object = known, max_object
        self._host = known.address.rpartition(":")[0].strip("[]")
        self._tls = client_context(known.tls) if known.tls is not None else None
        self._line: Socket | None = None
        self._closed = threading.Event()
        #: Who has it has the line; a call lets it go when weights have to move.
        self._turn = threading.Lock()
        self._calling = False
        #: The model that came with the last call, and one that may be that of the next.
        self._called: _Fetching | None = None
        self._ahead: _Fetching | None = None

    def close(self) -> None:
        """End what is being read or written."""
        self._closed.set()
        if line := self._line:
            cut(line)

    def call(self, heartbeat: Any, patience: float) -> Any:
        """The answer to a heartbeat that is held open. With a call to a round its model comes.

        None when the line is of no use for it now: it has to be said over gRPC.
        """
        if not self._turn.acquire(blocking=False):
            return None
        self._calling = True
        try:
            line = self._connected()
            line.settimeout(patience)
            return self._called_over(line, self._known.signed("Heartbeat", heartbeat))
        except RequestRefused:
            return None
        except OSError:
            self._hang_up()
            return None
        finally:
            self._calling = False
            self._turn.release()

    def _called_over(self, line: Socket, heartbeat: Any) -> Any:
        line.sendall(encode_frame(wire.TransferRequest(call=heartbeat)))
        told = self._told(line)
        answer = self._known.checked("Heartbeat", heartbeat, told.call)
        self._take_called(line, told, answer)
        return answer

    def _told(self, line: Socket) -> Any:
        """The answer to what was held open, which a model may precede."""
        self._ahead, told = None, _answer(line)
        if told.ahead:
            self._ahead = self._taken_ahead(line, told)
            told = _answer(line)
        return told

    def _take_called(self, line: Socket, told: Any, news: Any) -> None:
        """The model of the round that we are called to, if it comes or has come."""
        line.settimeout(STALL)
        ahead, self._ahead = self._ahead, None
        if told.size:
            self._called = _Fetching(news.round, self._max_object)
            try:
                self._called.take(line, told)
            except (OSError, WeightsUnavailable):  # what is missing is asked for when it is due
                self._hang_up()
        elif ahead is not None and ahead.hasher.digest() == news.task.global_digest:
            ahead.round = news.round
            self._called = ahead

    def _taken_ahead(self, line: Socket, told: Any) -> _Fetching:
        """A model that may be the next one: nothing is done with it before we are called to it."""
        patience, ahead = line.gettimeout(), _Fetching(-1, self._max_object)
        line.settimeout(STALL)
        try:
            ahead.take(line, told)
        except WeightsUnavailable as error:
            raise ConnectionError(str(error)) from error
        line.settimeout(patience)
        return ahead

    def read_global(self, round_: int, digest: bytes, stamp: bytes = b"") -> Arrays:
        """The round's global model, when its bytes are the ones announced."""
        fetching, self._called = self._called, None
        if fetching is None or fetching.round != round_:
            fetching = _Fetching(round_, self._max_object)
        if not fetching.whole:
            self._insist("Fetch", fetching)
        if fetching.hasher.digest() != digest:
            raise WeightsUnavailable(f"{round_}/global is not the model that was announced")
        try:
            return decoded(f"{round_}/global", fetching.body, digest, digest)
        except BadModel as error:
            raise WeightsUnavailable(str(error)) from error

    def write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        """Give an update to the coordinator; its digest."""
        storing = _Storing(round_, arrays)
        self._insist("Store", storing)
        return storing.digest()

    def deliver(self, arrays: Mapping[str, Array], end: Any) -> Any:
        """Give an update to the coordinator and say so with `end`, which gets its digest.

        What that was answered. If nothing, it has to be said over gRPC; it may have been heard.
        """
        brief = end.ByteSize() < MAX_FRAME // 2  # a long history does not fit a frame
        said = _Said(partial(self._say_end, end), partial(self._hear_end, end)) if brief else None
        storing = _Storing(end.round, arrays, said, end.number_samples)
        self._insist("Store", storing)
        end.digest = storing.digest()
        return storing.answer

    def _say_end(self, end: Any, line: Socket, digest: bytes) -> None:
        end.digest = digest
        request = wire.TransferRequest(end=self._known.signed("EndTrainingRound", end))
        line.sendall(encode_frame(request))

    def _hear_end(self, end: Any, line: Socket) -> Any:
        """Nothing when the line broke before, or now is not the time."""
        line.settimeout(STALL + end.wait_ms / 1000)
        try:
            told = self._told(line)
        except RequestRefused as refused:
            if refused.code not in PASSING:
                raise
            return None
        except OSError:
            cut(line)  # which `_connected` notices
            return None
        if not told.HasField("end"):
            return None
        answer = self._known.checked("EndTrainingRound", end, told.end)
        self._take_called(line, told, answer.news)
        return answer

    def _insist(self, method: str, body: _Fetching | _Storing) -> None:
        if self._calling and (line := self._line):
            cut(line)
        with self._turn:
            self._move(method, body)

    def _move(self, method: str, body: _Fetching | _Storing) -> None:
        delays = backoff(most=self._known.longest_pause)
        while True:
            moved = body.moved
            try:
                line = self._connected()
                body.move(line, partial(self._ask, line, method, body.request()))
                return
            except RequestRefused as refused:
                if refused.code not in PASSING:
                    raise
                reason = str(refused)
            except OSError as error:
                self._hang_up()
                reason = str(error)
            if body.moved > moved:  # it gets on, if only now and then
                delays = backoff(most=self._known.longest_pause)
            if self._closed.wait(next(delays)):
                raise WeightsUnavailable(f"we left before weights could move: {reason}")

    def _ask(self, line: Socket, method: str, request: Any) -> None:
        self._known.signed(method, getattr(request, method.lower()))
        line.sendall(encode_frame(request))

    def _connected(self) -> Socket:
        if self._line is not None and not _hung_up(self._line):
            return self._line
        self._hang_up()
        bare = socket.create_connection((self._host, self._known.weights_port), timeout=STALL)
        try:
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tls = self._tls
            line = bare if tls is None else TlsSocket.connect(tls, bare, self._host)
        except BaseException:
            bare.close()
            raise
        self._line = line
        if self._closed.is_set():  # meanwhile
            cut(line)
        return line

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()


class _Fetching:
    """A global model on its way to us."""

    def __init__(self, round_: int, limit: int) -> None:
        self.round, self._limit = round_, limit
        self.moved, self.hasher = 0, blake3()
        self._body: Array = np.empty(0, np.uint8)

    @property
    def body(self) -> memoryview:
        return self._body.data.toreadonly()

    @property
    def whole(self) -> bool:
        return 0 < len(self._body) == self.moved

    def request(self) -> Any:
        return wire.TransferRequest(fetch=wire.FetchRequest(round=self.round, offset=self.moved))

    def move(self, line: Socket, ask: Callable[[], None]) -> None:
        ask()
        self.take(line, _answer(line))

    def take(self, line: Socket, answer: Any) -> None:
        if not 0 < answer.size <= self._limit:
            raise WeightsUnavailable(f"the global model is announced with {answer.size} bytes")
        if answer.size != len(self._body):
            self._body, self.moved, self.hasher = page_aligned(answer.size), 0, blake3()
        if answer.offset != self.moved:
            raise ConnectionError("the coordinator has another model now: begin again")
        while self.moved < len(self._body):
            piece = self._body[self.moved : self.moved + PIECE].data
            fill(line, piece)
            self.hasher.update(piece)
            self.moved += len(piece)


class _Said(NamedTuple):
    """What is said behind a body, with its digest: it is heard, and answered, when all has come."""

    say: Callable[[Socket, bytes], None]
    hear: Callable[[Socket], Any]


class _Storing:
    """An update on its way to the coordinator."""

    def __init__(
        self,
        round_: int,
        arrays: Mapping[str, Array],
        said: _Said | None = None,
        samples: int = 0,
    ) -> None:
        self._round, self._token = round_, secrets.token_bytes(TOKEN_BYTES)
        self._samples = samples
        self._said, self.answer = said, None
        self._body = OutgoingModel(arrays)
        self.moved = 0
        #: Whether the body is sent before anything is answered: the first time. It may be refused
        #: in the midst of it, which we may not hear; then we ask first.
        self._ahead, self._asked = False, False

    def digest(self) -> bytes:
        return self._body.digest()

    def request(self) -> Any:
        self._ahead, self._asked = not self._asked, True
        store = wire.StoreRequest(
            round=self._round,
            size=self._body.size,
            token=self._token,
            ahead=self._ahead,
            number_samples=self._samples,
        )
        return wire.TransferRequest(store=store)

    def move(self, line: Socket, ask: Callable[[], None]) -> None:
        if not self._ahead:
            ask()
            self.moved = _answer(line).offset
        if self.moved > self._body.size:
            raise WeightsUnavailable("the coordinator says it has more of our update than there is")
        with corked(line):
            if self._ahead:
                ask()
            self._send(line)
        _answer(line)
        if self._said is not None:
            self.answer = self._said.hear(line)

    def _send(self, line: Socket) -> None:
        for piece in self._body.pieces(self.moved):
            line.sendall(piece)
            self.moved += len(piece)
        if self._said is not None:
            self._said.say(line, self.digest())


def _answer(line: Socket) -> Any:
    answer = read_frame(line, wire.TransferAnswer, MAX_ANSWER)
    if answer.code:
        code = _CODES.get(answer.code, grpc.StatusCode.UNKNOWN)
        raise RequestRefused(code, plain_text(answer.reason))
    return answer


def _hung_up(line: Socket) -> bool:
    """Whether the other side closed the line while nobody used it."""
    bare = line.bare if isinstance(line, TlsSocket) else line
    line.setblocking(False)
    try:
        with contextlib.suppress(BlockingIOError):
            return not bare.recv(1, socket.MSG_PEEK)
        return False
    except OSError:
        return True
    finally:
        line.settimeout(STALL)
