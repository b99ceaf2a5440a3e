"""Records that one consumer holds, until it says that they are done."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, Self, overload

from folkmoot.unified.channel.messages import Ids


class Lessor(Protocol):
    def ack(self, spans: Ids) -> None: ...
    def give_back(self, spans: Ids) -> None: ...
    def extend(self, spans: Ids) -> None: ...


class Batch(Sequence[Any]):
    """A sequence of records. As a context it is acked at the end, or given back after an error.

    `ids` are the channel's numbers of the records: the same record has the same id whenever and to
    whomever it is delivered, so whoever writes down which ids it used has each effect once.
    """

    def __init__(self, lessor: Lessor | None, spans: Ids, records: list[Any]) -> None:
        self.spans, self.records = spans, records
        self._lessor = lessor

    @property
    def ids(self) -> list[int]:
        return [i for first, end in self.spans for i in range(first, end)]

    def ack(self) -> None:
        """They are done: nobody gets them again."""
        if (lessor := self._end()) is not None:
            lessor.ack(self.spans)

    def give_back(self) -> None:
        """Another consumer shall have them."""
        if (lessor := self._end()) is not None:
            lessor.give_back(self.spans)

    def extend(self) -> None:
        """They take longer: the lease begins anew."""
        if self._lessor is not None:
            self._lessor.extend(self.spans)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        self.ack() if kind is None else self.give_back()

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: int | slice) -> Any:
        return self.records[at]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.records)

    def _end(self) -> Lessor | None:
        lessor, self._lessor = self._lessor, None
        return lessor
