"""A global model that goes into a remote bucket while it is written.

Its bytes follow the writer, each piece when it was hashed. The last one waits until the model has
its name here, which is when it counts: of a model that is given up before there is no object. What
cannot be sent so is put when it is whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

from folkmoot.exchange.bucket import Bucket
from folkmoot.federated.model_file.hashing_writer import HashingWriter
from folkmoot.federated.model_file.layout import Layout


class SentModel(HashingWriter):
    def __init__(self, bucket: Bucket, key: str, path: Path, layout: Layout, spare: Path) -> None:
        self._bucket, self._key = bucket, key
        self._news, self._named, self._given_up = threading.Condition(), False, False
        super().__init__(path, layout, spare)
        self._sent: Future[bool] = Future()
        threading.Thread(target=self._deliver, name="folkmoot-sent", daemon=True).start()

    def arrive(self) -> None:
        """Wait until the model, which has its name here, is in the bucket."""
        if not self._sent.result():
            self._bucket.put(self._key, self.path)

    def commit(self, *, durable: bool = True) -> None:
        with self._news:
            super().commit(durable=durable)
            self._named = True
            self._news.notify_all()

    def close(self) -> None:
        with self._news:
            super().close()
            self._given_up = not self._named
            self._news.notify_all()

    def _hash(self, data: memoryview) -> None:
        super()._hash(data)
        with self._news:
            self._news.notify_all()

    # Its thread.

    def _deliver(self) -> None:
        try:
            self._sent.set_result(
                self._bucket.put_direct(self._key, self._total, self._pieces),
            )
        except BaseException as error:  # is told by `arrive`
            self._sent.set_exception(error)

    def _pieces(self) -> Iterator[memoryview]:
        room = memoryview(bytearray(min(self._piece, self._total)))
        fd = self._opened()
        try:
            for start in range(0, self._total, self._piece):
                self._wait_for(min(start + self._piece, self._total))
                piece, done = room[: self._total - start], 0
                while done < len(piece):
                    done += os.preadv(fd, [piece[done:]], start + done)
                yield piece
        finally:
            os.close(fd)

    def _opened(self) -> int:
        with self._news:
            self._check()
            return os.open(self.path if self._named else self.staging, os.O_RDONLY | os.O_CLOEXEC)

    def _wait_for(self, end: int) -> None:
        """Until so many bytes are there; all of them, until they count."""
        with self._news:
            while not self._named and (end == self._total or self._hashed * self._piece < end):
                self._check()
                self._news.wait()

    def _check(self) -> None:
        if self._given_up:
            raise OSError(f"{self._key} was given up before it was whole")
