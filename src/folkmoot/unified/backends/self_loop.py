"""Workers that loop by themselves: pull a batch, process it, put what came of it, and again.

    class Tokenizer(SelfLoop):
        def process(self, batch):            # records of the channel that the role reads
            return [tokenize(text) for text in batch]

    def process(batch): ...                  # a function will do, or any class with `process`

A role `reads` one channel and `writes` any number: `process` gives a list for one, and a dict of
lists by the channels' names for several; None puts nothing. A role that reads none has `source()`
instead, which yields its records in the same order whenever it is started; what is in the channel
already is passed over.

A batch is acked when what came of it is in. A worker that dies before leaves its records to the
others; one that dies in between has used them, and its successor is told so and leaves them out. So
every record is processed at least once, and what came of it is in the next channel exactly once.
At the end of the line, `batch.ids` tells records that were seen before from new ones.

The loop ends when its channel is closed and drained; then what it writes is finished, and those who
read that end in turn.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from folkmoot.core.job import RoleSpec
from folkmoot.unified import entry
from folkmoot.unified.channel import AlreadyUsed, Batch, DataChannel
from folkmoot.unified.channel.intervals import Intervals, spans_of
from folkmoot.unified.current import CurrentWorker, as_worker
from folkmoot.unified.worker import Worker

Made = Iterable[Any] | dict[str, Iterable[Any]] | None


class SelfLoop(Worker):
    """A worker of a role with the backend `self_loop`."""

    #: How many records are processed at once, at most.
    batch_size: int = 64

    def process(self, batch: Sequence[Any]) -> Made:
        """What comes of some records; `batch.ids` are their ids."""
        raise NotImplementedError(f"{type(self).__name__} reads a channel: give it process(batch)")

    def source(self) -> Iterable[Any]:
        """All records of a role that reads no channel."""
        raise NotImplementedError(f"{type(self).__name__} reads no channel: give it source()")


class LoopWorker(Worker):
    """Runs the loop of a worker between the channels of its role."""

    def __init__(
        self,
        process: Callable[[Batch], Made],
        source: Callable[[], Iterable[Any]],
        reads: DataChannel | None,
        writes: dict[str, DataChannel],
        batch_size: int = SelfLoop.batch_size,
    ) -> None:
        self._process, self._source = process, source
        self._reads, self._writes = reads, writes
        self._batch_size = batch_size
        self.records = 0

    def start(self) -> dict[str, int]:
        if self._reads is None:
            self._produce()
        else:
            self._consume(self._reads)
        return {"records": self.records}

    def stop(self) -> None:
        """The batch that is in work is done first."""
        super().stop()
        if self._reads is not None:
            self._reads.interrupt()

    def _produce(self) -> None:
        (channel,) = self._writes.values()
        for record in islice(self._source(), channel.next_number - 1, None):
            if self.stopping:
                break
            channel.put(record)
            self._count(1)
        channel.flush()

    def _consume(self, channel: DataChannel) -> None:
        for batch in channel.batches(self._batch_size):
            self._handle(channel, batch)
            self._count(len(batch))
        channel.leave()  # with its acks

    def _count(self, records: int) -> None:
        self.records += records
        self.progress(records=self.records)

    def _handle(self, channel: DataChannel, batch: Batch) -> None:
        made = _by_channel(self._process(batch), self._writes)
        for name, output in self._writes.items():
            self._put(channel.name, output, batch, made[name])

    def _put(self, source: str, output: DataChannel, batch: Batch, made: list[Any]) -> None:
        """Put what was made from a batch; where a part of it was used before, from the rest."""
        while batch:
            try:
                return output.put_from(made, source, batch.ids)
            except AlreadyUsed as error:
                batch = without(batch, error.spans[source])
                if batch:
                    made = _by_channel(self._process(batch), self._writes)[output.name]
        return None


def without(batch: Batch, used: Iterable[tuple[int, int]]) -> Batch:
    """The records of a batch that were not used."""
    over = Intervals(used)
    rest = [(i, record) for i, record in zip(batch.ids, batch, strict=True) if i not in over]
    spans = [(first, end) for first, end in spans_of(i for i, _ in rest)]
    return Batch(None, spans, [record for _, record in rest])


def _by_channel(made: Made, writes: dict[str, DataChannel]) -> dict[str, list[Any]]:
    if made is None:
        return {name: [] for name in writes}
    if not isinstance(made, dict):
        if len(writes) != 1:
            raise TypeError(
                f"process gave one list for {len(writes)} channels: give a dict by their names,"
                f" {', '.join(writes) or 'or nothing'}"
            )
        made = {next(iter(writes)): made}
    if unknown := set(made) - set(writes):
        raise TypeError(
            f"process gave records for {sorted(unknown)}, which its role does not write"
        )
    return {name: list(made.get(name, ())) for name in writes}


def make_worker(role: RoleSpec, current: CurrentWorker) -> Worker:
    """The backend's worker: the entry's class or function in its loop."""
    with as_worker(current):
        reads, writes = _channels(role, current)
        found = entry.load(role.entry)
        made: Any = found(**current.actor.config) if isinstance(found, type) else None
        process = made.process if made is not None else found
        if made is not None:
            current.methods.export_instance(made)
        loop = LoopWorker(
            process,
            getattr(made, "source", found),
            reads,
            writes,
            getattr(made, "batch_size", SelfLoop.batch_size),
        )
        if "status" not in current.methods.names():
            current.methods.export("status", loop.status, inline=True)
        return loop


def _channels(
    role: RoleSpec, current: CurrentWorker
) -> tuple[DataChannel | None, dict[str, DataChannel]]:
    if len(role.reads) > 1 or (not role.reads and len(role.writes) != 1):
        raise entry.EntryError(
            f"a self-loop role reads one channel, or none and writes one: {current.actor.role}"
            f" reads {len(role.reads)} and writes {len(role.writes)}"
        )
    reads = current.channel(role.reads[0]) if role.reads else None
    return reads, {name: current.channel(name) for name in role.writes}
