"""The members of an etcd cluster: who is asked, what to do when one does not answer.

A member that does not answer is left for the next one. While the members elect a leader, or all of
them restart, a request is tried again until its time is up. `hasleader` makes a member that is cut
off from the others say so, instead of letting us wait at it.
"""

import queue
import random
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from folkmoot.authority.store.kv import StoreError, StoreGone
from folkmoot.host.clock import backoff
from folkmoot.host.proto import Described
from folkmoot.host.tls import ClientTls

MESSAGES = Described(Path(__file__).with_name("etcd.proto")).messages
UNARY = {"Range": "KV", "Txn": "KV", "Authenticate": "Auth"}
OPTIONS = [
    # A member that hangs is noticed in 15 s also by who only waits; etcd allows no quicker pings
    # than one in 5 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
]
# Another member, or the same one later, may do better.
PASSING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,  # what Go said, such as "context deadline exceeded"
}


class Unanswered(Exception):
    """One member did not answer; what it was asked may or may not have happened."""


class Cluster:
    """Channels to the members, for one thread at a time."""

    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        timeout: float,
        tls: ClientTls | None = None,
        user: str = "",
        password: str = "",
    ) -> None:
        names = [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses
        ]
        # Not everybody at the first member.
        self._names = random.sample(names, len(names))
        self._addresses, self._tls = addresses, tls
        self._user, self._password, self._token = user, password, ""
        self._channels: dict[str, grpc.Channel] = {}
        self._calls: dict[tuple[str, str], Any] = {}
        self._closed = threading.Event()
        self.timeout = timeout
        self.url = f"{'etcds' if tls else 'etcd'}://{','.join(names)}"

    def another(self) -> "Cluster":
        return Cluster(self._addresses, self.timeout, self._tls, self._user, self._password)

    def ask(self, method: str, request: Any, deadline: float) -> Any:
        """Until a member answers. Only for what may happen twice."""
        for delay in backoff(0.01, 0.5):
            try:
                return self.ask_once(method, request, deadline)
            except Unanswered as error:
                self.pause(delay, deadline, error)
        raise AssertionError("back-off never ends")

    def ask_together(self, method: str, requests: Sequence[Any], deadline: float) -> list[Any]:
        """The same for several requests that are all on their way at once."""
        for delay in backoff(0.01, 0.5):
            try:
                return self._ask_together_once(method, requests, deadline)
            except Unanswered as error:
                self.pause(delay, deadline, error)
        raise AssertionError("back-off never ends")

    def _ask_together_once(
        self, method: str, requests: Sequence[Any], deadline: float
    ) -> list[Any]:
        calls: list[Any] = []
        try:
            metadata, seconds = self._metadata(deadline), self._seconds(deadline)
            send = self._unary(method).future
            calls.extend(send(one, timeout=seconds, metadata=metadata) for one in requests)
            return [call.result() for call in calls]
        except grpc.RpcError as error:
            raise self.understand(error) from error
        except (ValueError, grpc.FutureCancelledError) as error:  # another thread closed it
            raise self.closed() from error
        finally:
            for call in calls:
                call.cancel()  # nothing, if it was answered

    def pause(self, delay: float, deadline: float, why: Unanswered) -> None:
        """Before the next attempt; `StoreGone` when there is no time left for one."""
        if time.monotonic() + delay > deadline:
            raise StoreGone(
                f"no member of {self.url} answered in time (the last: {why}); a majority of "
                "etcd's members must run and reach each other: see `etcdctl endpoint health`"
            ) from why
        if self._closed.wait(delay):
            raise self.closed()

    def ask_once(self, method: str, request: Any, deadline: float) -> Any:
        """One attempt at one member; after `Unanswered`, the next one is asked."""
        seconds = self._seconds(deadline)
        try:
            metadata = self._metadata(deadline)
            return self._unary(method)(request, timeout=seconds, metadata=metadata)
        except grpc.RpcError as error:
            raise self.understand(error) from error
        except ValueError as error:  # gRPC's word for a channel that another thread closed
            raise self.closed() from error

    def _seconds(self, deadline: float) -> float:
        """Enough for a busy member; short enough to ask another before the time is up."""
        return max(0.01, min(deadline - time.monotonic(), max(1.0, self.timeout / 4)))

    def watch(self, request: Any, seconds: float) -> Generator[Any, None, None]:
        """What a member says to a WatchRequest, for so long; `Unanswered` when it stops."""
        # The stream is open while we have not ended ours.
        requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests.put(request)
        try:
            metadata = self._metadata(time.monotonic() + self.timeout)
            call = self._watch()(iter(requests.get, None), timeout=seconds, metadata=metadata)
            try:
                yield from call
            finally:
                call.cancel()
            raise Unanswered("it ended a watch")
        except grpc.RpcError as error:
            # Both sides watch the time; the member may be the first to say that it is up.
            if "deadline exceeded" not in (error.details() or "").lower():
                raise self.understand(error) from error
        except ValueError as error:
            raise self.closed() from error
        finally:
            requests.put(None)

    def open_watch(self, requests: Iterator[Any]) -> Any:
        """A stream of a member's answers to WatchRequests that stays until one side ends it."""
        try:
            metadata = self._metadata(time.monotonic() + self.timeout)
            return self._watch()(requests, metadata=metadata)
        except grpc.RpcError as error:
            raise self.understand(error) from error
        except ValueError as error:
            raise self.closed() from error

    def close(self) -> None:
        """Ends what another thread waits for, too."""
        self._closed.set()
        for channel in list(self._channels.values()):
            channel.close()

    def closed(self) -> StoreError:
        return StoreError(f"this connection to {self.url} is closed; open another")

    def _unary(self, method: str) -> Any:
        if (name := self._names[0], method) not in self._calls:
            answer = MESSAGES[f"{method}Response"]
            self._calls[name, method] = self._channel(name).unary_unary(
                f"/etcdserverpb.{UNARY[method]}/{method}",
                request_serializer=MESSAGES[f"{method}Request"].SerializeToString,
                response_deserializer=answer.FromString,
            )
        return self._calls[name, method]

    def _watch(self) -> Any:
        return self._channel(self._names[0]).stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=MESSAGES["WatchRequest"].SerializeToString,
            response_deserializer=MESSAGES["WatchResponse"].FromString,
        )

    def _channel(self, name: str) -> grpc.Channel:
        if self._closed.is_set():
            raise self.closed()
        if name not in self._channels:
            self._channels[name] = (
                grpc.secure_channel(name, self._tls.credentials(), OPTIONS)
                if self._tls
                else grpc.insecure_channel(name, OPTIONS)
            )
        return self._channels[name]

    def _metadata(self, deadline: float) -> list[tuple[str, str]]:
        metadata = [("hasleader", "true")]
        if self._user:
            if not self._token:
                self._token = self._authenticate(deadline)
            metadata.append(("token", self._token))
        return metadata

    def _authenticate(self, deadline: float) -> str:
        request = MESSAGES["AuthenticateRequest"](name=self._user, password=self._password)
        seconds = max(0.01, deadline - time.monotonic())
        return str(self._unary("Authenticate")(request, timeout=seconds).token)

    def understand(self, error: grpc.RpcError) -> Exception:
        """`Unanswered` for what may pass, else what the user must do."""
        code, details = error.code(), error.details() or ""
        if self._closed.is_set():
            return self.closed()
        if code in PASSING or "too many requests" in details:
            name = self._names.pop(0)
            self._names.append(name)
            return Unanswered(f"{name}: {details or code.name.lower()}")
        if code is grpc.StatusCode.UNAUTHENTICATED and self._token:
            self._token = ""  # it expired, or the members restarted
            return Unanswered(f"{self._names[0]}: {details}")
        return StoreError(f"{self.url} refused: {details}; {_advice(code, details)}")


def _advice(code: grpc.StatusCode, details: str) -> str:
    if "space exceeded" in details:
        return (
            "compact and defragment it (`etcdctl compact`, `defrag`, `alarm disarm`), and run it "
            "with --auto-compaction-retention=10m"
        )
    if "user name is empty" in details or "permission" in details or "authentication" in details:
        return "give etcd://user:password@… of a user who may read and write this prefix"
    if code is grpc.StatusCode.INVALID_ARGUMENT and "too large" in details:
        return "its members must run with --max-request-bytes of at least 1572864, the default"
    return f"etcd calls this {code.name}"
