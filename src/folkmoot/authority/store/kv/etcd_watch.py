"""What an etcd tells of its own accord: one stream, which stays, of what happens to some keys.

A wait that looks, opens a stream and closes it again costs both sides as much as half a dozen
reads. This one costs a message for each change, and the change is in it.
"""

import queue
import threading
import time
from typing import Any

import grpc

from folkmoot.authority.store.kv import Change
from folkmoot.authority.store.kv import etcd_requests as ask
from folkmoot.authority.store.kv.etcd_cluster import MESSAGES, Cluster, Unanswered

KEY = 1  # the number of the watch of the key itself; those of the numbered keys follow


class EtcdWatch:
    """Of `key`, and of those that are called `numbered` and a number."""

    def __init__(self, cluster: Cluster, key: bytes, numbered: bytes) -> None:
        self._cluster, self._key, self._numbered = cluster, key, numbered
        self._wanted = False
        self._watches = KEY  # how many there were on this stream
        self._revision = 0  # all up to it is known here
        self._stream: _Stream | None = None

    def begin(self) -> bytes | None:
        self.close()
        deadline = time.monotonic() + self._cluster.timeout
        answer = self._cluster.ask("Range", ask.range_request(self._key), deadline)
        self._revision, self._watches = answer.header.revision, KEY
        self._stream = _Stream(self._cluster)
        self._create(KEY, self._key)
        if self._wanted:
            self._watch_numbered()
        return ask.found(answer)[0]

    def numbered(self, wanted: bool) -> None:
        if wanted == self._wanted:
            return
        self._wanted = wanted
        if self._stream is None:
            return
        if wanted:
            self._watch_numbered()
        else:
            cancel = MESSAGES["WatchCancelRequest"](watch_id=self._watches)
            self._stream.send(MESSAGES["WatchRequest"](cancel_request=cancel))

    def changes(self, seconds: float) -> list[Change] | None:
        if self._stream is None:
            return None
        found: list[Change] = []
        try:
            for answer in self._stream.take(seconds):
                if answer.canceled and (answer.watch_id == KEY or self._is_watched(answer)):
                    raise Unanswered(answer.cancel_reason)  # compacted, or it lost its leader
                self._revision = max(self._revision, answer.header.revision)
                found += filter(None, map(self._change, answer.events))
        except Unanswered:
            self.close()
            return None
        return found

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _is_watched(self, answer: Any) -> bool:
        return self._wanted and bool(answer.watch_id == self._watches)

    def _watch_numbered(self) -> None:
        self._watches += 1
        end = self._numbered[:-1] + bytes([self._numbered[-1] + 1])
        self._create(self._watches, self._numbered, end)

    def _create(self, number: int, key: bytes, end: bytes = b"") -> None:
        assert self._stream is not None
        create = MESSAGES["WatchCreateRequest"](
            key=key, range_end=end, start_revision=self._revision + 1, watch_id=number
        )
        self._stream.send(MESSAGES["WatchRequest"](create_request=create))

    def _change(self, event: Any) -> Change | None:
        name = bytes(event.kv.key)
        value = None if event.type else bytes(event.kv.value) or None
        if name == self._key:
            return None, value
        number = name.removeprefix(self._numbered)
        # A number as we write it: a stranger's key may be called anything.
        if not number.isdigit() or number != b"%d" % int(number[:20]):
            return None
        return int(number), value


class _Stream:
    """Messages to a member and from it, read by a thread: gRPC's own wait knows no timeout."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call = cluster.open_watch(iter(self._requests.get, None))
        threading.Thread(target=self._read, name="etcd watch", daemon=True).start()

    def send(self, request: Any) -> None:
        self._requests.put(request)

    def take(self, seconds: float) -> list[Any]:
        """All answers that are there, at least one unless none comes for so long."""
        answers: list[Any] = []
        try:
            answers.append(self._answers.get(timeout=max(seconds, 0.0)))
            while True:
                answers.append(self._answers.get_nowait())
        except queue.Empty:
            pass
        for answer in answers:
            if isinstance(answer, grpc.RpcError):
                raise self._cluster.understand(answer) from answer
            if answer is None:
                raise Unanswered("it ended a watch")
        return answers

    def close(self) -> None:
        self._requests.put(None)
        self._call.cancel()

    def _read(self) -> None:
        try:
            for answer in self._call:
                self._answers.put(answer)
            self._answers.put(None)
        except grpc.RpcError as error:
            self._answers.put(error)
