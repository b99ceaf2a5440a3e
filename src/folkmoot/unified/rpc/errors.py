"""Why a call gave no result: each reason a type, each message a sentence that names the actor."""

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.core.user_error import UserError


class RpcError(UserError):
    """A call that gave no result, or a connection that could not be made."""


class Unauthorised(RpcError):
    """The other end does not know the job's secret, or is not who was asked for."""


class FrameError(RpcError):
    """The other end sent something that is no frame."""


class WorkerDied(RpcError):
    """The actor that was called is gone: its connection broke, or nobody listens there."""

    def __init__(self, actor: str, reason: str) -> None:
        super().__init__(f"{actor} {reason}")
        self.actor = actor

    def __reduce__(self) -> tuple[object, ...]:
        return WorkerDied, (self.actor, str(self).removeprefix(f"{self.actor} "))


class Overloaded(RpcError):
    """More calls or bytes are waiting than the actor takes."""


class CallTimeout(RpcError, TimeoutError):
    """A call took longer than it may; the message shows the stacks of both sides."""


class RemoteFailure(msgspec.Struct, frozen=True, array_like=True):
    """An exception as it travels: in words, and pickled for who wants to look into it."""

    kind: str
    message: str
    traceback: str
    pickled: bytes = b""


class RemoteError(RpcError):
    """The called method raised. `kind` is the type's name, `remote_traceback` where it was."""

    def __init__(self, actor: str, method: str, failure: RemoteFailure) -> None:
        super().__init__(
            f"{method} of {actor} raised {failure.kind}: {failure.message}\n\n"
            f"{failure.traceback.rstrip()}"
        )
        self.actor, self.method, self.failure = actor, method, failure

    @property
    def kind(self) -> str:
        return self.failure.kind

    @property
    def remote_traceback(self) -> str:
        return self.failure.traceback

    def __reduce__(self) -> tuple[object, ...]:
        return RemoteError, (self.actor, self.method, self.failure)


def read_failure(encoded: bytes | memoryview) -> RemoteFailure:
    try:
        return msgspec.msgpack.decode(encoded, type=RemoteFailure)
    except UNREADABLE as error:
        return RemoteFailure("FrameError", f"and the error cannot be read: {error}", "")
