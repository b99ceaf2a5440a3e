"""What a worker thread does with a line once a request was granted: send a file, or take one."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path
from typing import Protocol

from folkmoot.federated import wire
from folkmoot.federated.model_file.reader import page_aligned
from folkmoot.federated.transfer.frames import PIECE, encode_frame, fill
from folkmoot.federated.transfer.uploads import Upload

#: Seconds in which a piece must pass: who is slower than four kilobytes a second loses its line.
STALL = 60.0


class Transfer(Protocol):
    """A granted request."""

    def carry(self, line: socket.socket) -> None:
        """Answer, and move the body. Blocks; `OSError` when the line broke."""


class Sending:
    """A file from `offset` on. Nobody writes over it while it is held: see `HashingWriter`."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path, self._offset = path, offset

    def carry(self, line: socket.socket) -> None:
        with self._path.open("rb", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            size = os.fstat(file.fileno()).st_size
            done = min(self._offset, size)
            line.sendall(encode_frame(wire.TransferAnswer(size=size, offset=done)))
            buffer = page_aligned(PIECE).data
            while done < size:
                got = os.preadv(file.fileno(), [buffer], done)
                if got == 0:
                    raise OSError("the model's file was cut off while it was sent")
                line.sendall(buffer[:got])
                done += got


class Taking:
    """The rest of an update, into its file."""

    def __init__(self, upload: Upload) -> None:
        self._upload = upload

    def carry(self, line: socket.socket) -> None:
        upload = self._upload
        if not upload.hold(line):
            answer = wire.TransferAnswer(
                code=14, reason="another line of yours is at it: try again"
            )
            line.sendall(encode_frame(answer))
            return
        try:
            line.sendall(encode_frame(wire.TransferAnswer(offset=upload.offset)))
            buffer = page_aligned(PIECE).data
            while left := upload.size - upload.offset:
                began = time.monotonic()
                piece = buffer[:left]
                fill(line, piece)
                upload.write(piece)
                if time.monotonic() - began > STALL:
                    raise TimeoutError("the line is too slow")
            upload.finish()
        finally:
            upload.release()
        line.sendall(encode_frame(wire.TransferAnswer(size=upload.size, offset=upload.size)))
