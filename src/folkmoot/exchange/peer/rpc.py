"""Questions between members: typed, bounded, and answered in time or not at all.

A `RpcMethod` is a name with the types of its question and its answer. Whoever answers may raise
`CallRefused` with a sentence for the asker; any other error is told as "it failed" and stays in the
answerer's log.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

import msgspec

from folkmoot.core.unreadable import UNREADABLE

Q = TypeVar("Q")
A = TypeVar("A")


class CallRefused(Exception):
    """The other side understood and does not do it; its message is the reason."""


class NoAnswer(Exception):
    """The other side is not there, too slow, or answered what cannot be read."""


class RpcMethod(Generic[Q, A]):
    """A question and its answer."""

    def __init__(self, name: str, question: type[Q], answer: type[A]) -> None:
        self.name = name
        self.question = msgspec.msgpack.Decoder(question)
        self._answer = msgspec.msgpack.Decoder(answer)

    def read_answer(self, payload: bytes) -> A:
        try:
            return self._answer.decode(payload)
        except UNREADABLE as error:
            raise NoAnswer(f"the answer cannot be read: {str(error)[:200]}") from error


Handler = Callable[[bytes, Any], Awaitable[Any]]
"""Takes the asker's key and its question."""
Answers = dict[str, tuple[RpcMethod[Any, Any], Handler]]
"""The methods that a peer answers, by name."""


async def answer(answers: Answers, asker: bytes, name: str, payload: bytes) -> bytes:
    """The encoded answer; raises CallRefused."""
    if name not in answers:
        raise CallRefused("no such method")
    method, handler = answers[name]
    try:
        question = method.question.decode(payload)
    except UNREADABLE as error:
        raise CallRefused(f"the question cannot be read: {str(error)[:200]}") from error
    return msgspec.msgpack.encode(await handler(asker, question))
