"""What happens on a line once a request was granted: a file is sent, or taken."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from folkmoot.federated import wire
from folkmoot.federated.transfer.lines import READ, SOON, STALL, Life, Line
from folkmoot.federated.transfer.uploads import Upload
from folkmoot.host.corked import corked

#: Bytes of a body that are taken at once if they are there. Bodies that came together are whole one
#: after the other then, and what has to be done about each overlaps with the next.
TURN = 8 << 20


class Transfer(Protocol):
    """A granted request."""

    def carry(self, line: Line) -> Life:
        """Answer, and move the body. `OSError` when the line broke."""


class Telling:
    """An answer, and no body; `sent` is called when it is on its way."""

    def __init__(self, answer: Any, sent: Callable[[], object] = lambda: None) -> None:
        self._answer, self._sent = answer, sent

    def carry(self, line: Line) -> Life:
        yield from line.send_frame(self._answer)
        self._sent()


class Sending:
    """A file from `offset` on. Nobody writes over it while it is held: see `reopened`."""

    def __init__(self, path: Path, offset: int, answer: Any = None) -> None:
        self._path, self._offset = path, offset
        self._answer = answer or wire.TransferAnswer()

    def carry(self, line: Line) -> Life:
        with self._path.open("rb", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield from _send_file(line, file, self._offset, self._answer)


class SendingAhead:
    """A model that may be the next one, to who waits to be called: the call to it follows."""

    def __init__(self, file: BinaryIO, digest: str) -> None:
        """`file` is ours from now on."""
        self._file, self.digest = file, digest

    def carry(self, line: Line) -> Life:
        with self._file:
            yield from _send_file(line, self._file, 0, wire.TransferAnswer(ahead=True))

    def close(self) -> None:
        self._file.close()


class NextModel(NamedTuple):
    """The model of round `round`, on its way to the disk, and who will be called to it."""

    round: int
    ids: tuple[str, ...]
    file: BinaryIO
    digest: str

    def sending(self) -> SendingAhead:
        fd = os.dup(self.file.fileno())
        return SendingAhead(open(fd, "rb", buffering=0), self.digest)


def _send_file(line: Line, file: BinaryIO, offset: int, answer: Any) -> Life:
    """`answer`, and the file from `offset` on."""
    line.allow(STALL)
    size = os.fstat(file.fileno()).st_size
    start = min(offset, size)
    answer.size, answer.offset = size, start

    def view(done: int) -> memoryview:
        got = os.preadv(file.fileno(), [line.piece], start + done)
        if got == 0:
            raise OSError("the model's file was cut off while it was sent")
        return line.piece[:got]

    with corked(line.socket):
        yield from line.send_frame(answer)
        yield from line.send(view, size - start)


class Taking:
    """The rest of an update, into its file; all of it where it comes unasked (`ahead`)."""

    def __init__(self, upload: Upload, *, ahead: bool = False) -> None:
        self._upload, self._ahead = upload, ahead

    def carry(self, line: Line) -> Life:
        upload = self._upload
        line.allow(STALL)
        if not upload.hold(line.socket):
            reason = "another line of yours is at it: try again"
            yield from line.send_frame(wire.TransferAnswer(code=14, reason=reason))
            if self._ahead:
                raise ConnectionAbortedError(reason)
            return
        try:
            if not self._ahead:
                yield from line.send_frame(wire.TransferAnswer(offset=upload.offset))
            elif upload.offset:
                raise ConnectionAbortedError("this is no new token")
            turn = TURN
            while left := upload.size - upload.offset:
                got = line.receive_ready(line.piece[:left])
                upload.write(line.piece[:got])
                line.passed(got)
                turn -= got
                if got < min(left, len(line.piece)):
                    yield READ
                elif turn <= 0:
                    yield SOON
                else:
                    continue
                turn = TURN
            upload.finish()
        finally:
            upload.release()
        yield from line.send_frame(wire.TransferAnswer(size=upload.size, offset=upload.size))
