"""The next global model, made before its round is over.

When every update that a round waits for is on its way, from a participant or out of a remote
bucket, their mean is begun: block by block, in the order of ids, each block as soon as all of them
have it. So it has the bits it would have had later. A small one begins when all of them have come,
while the disk still gets the record of the last.

It is a guess. It counts only if the round closes with exactly these bodies and sample counts, by
their digests; otherwise nothing is left of it, and the model is made of the files as ever. The sum
is on a thread of its own, which waits for bytes and holds nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import NamedTuple

from folkmoot.core.federation.state import Delivery, State
from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.spans import CombineFailed
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.coordinator.updates import Made, weighed
from folkmoot.federated.model_file.hashing_writer import HashingWriter
from folkmoot.federated.model_file.layout import BadModel
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.transfer.uploads import ArrivingModel, Upload

#: Bytes of updates from which it is worth a thread that is woken again and again: fewer are summed
#: in a few milliseconds, when all have come.
WORTH = 64 << 20


class Written(NamedTuple):
    """A model that is whole, and has no name yet."""

    out: HashingWriter
    figures: Mapping[str, float]


class Expected(NamedTuple):
    """An update that the sum counts on: one that came, or one that comes."""

    id: str
    samples: int
    body: Delivery | Upload

    @property
    def is_whole(self) -> bool:
        return isinstance(self.body, Delivery)

    def is_now(self, delivery: Delivery) -> bool:
        return (self.id, self.samples, self.body.digest) == (
            delivery.id,
            delivery.samples,
            delivery.digest,
        )


class EarlySums:
    """At most one sum, of the round in progress. All methods run on the event loop."""

    def __init__(
        self, config: Federation, store: CoordinatorBucket, state: Callable[[], State]
    ) -> None:
        self._config, self._store, self._state = config, store, state
        self._thread = ThreadPoolExecutor(1, "folkmoot-early")
        self._coming: dict[str, Expected] = {}
        #: Whole and good, and perhaps not yet recorded.
        self._judged: dict[str, Delivery] = {}
        self._sum: _Sum | None = None
        #: Strategies that look at updates more than once, remember, mask or add noise are not made
        #: for it; nor is a step that travelled in fewer bytes read faster than it comes.
        plain = config.aggregation.reads_once and not config.secure.enabled
        unpacked = config.compression.method == "none" and not config.security.aggregators
        self._possible = store.hashes and plain and unpacked

    def note(self, round_: int, id: str, upload: Upload, samples: int) -> None:
        """This body is on its way."""
        state = self._state()
        if not self._suits(state, round_):
            return
        self._coming[f"{state.round}/{id}"] = Expected(id, samples, upload)
        expected = self._expected(state) if upload.size * state.goal >= WORTH else []
        if self._sum is not None and self._sum.expected != expected:
            self.drop()
        if expected and self._sum is None:
            self._begin(state, expected)

    def note_judged(self, delivery: Delivery) -> None:
        """This update is whole and good, and will be recorded now."""
        state = self._state()
        if not self._suits(state, delivery.round):
            return
        self._judged[delivery.key] = delivery
        expected = self._expected(state)
        if self._sum is None and expected and all(update.is_whole for update in expected):
            self._begin(state, expected)

    def _suits(self, state: State, round_: int) -> bool:
        odd = state.initial_round or state.rules.max_staleness or state.region
        return self._possible and not odd and not state.closing and round_ == state.round

    def _begin(self, state: State, expected: Sequence[Expected]) -> None:
        self._sum = _Sum(self._config, self._store, state, expected)
        self._sum.begin(self._thread)

    def _expected(self, state: State) -> list[Expected]:
        """All that the round waits for or has; nothing while somebody has yet to begin."""
        if len(state.selected) != state.goal:
            return []
        found = []
        for id in state.selected:  # in their order
            key = f"{state.round}/{id}"
            if here := state.deliveries.get(key) or self._judged.get(key):
                found.append(Expected(id, here.samples, here))
            elif (coming := self._coming.get(key)) and coming.samples > 0:
                found.append(coming)
            else:
                return []
        return found

    async def made_of(
        self, deliveries: Sequence[Delivery], show: Callable[[HashingWriter], None]
    ) -> Made | None:
        """The model of exactly these is in the bucket, if it was begun and came to something.

        `show` sees it while the disk gets it, on another thread.
        """
        begun, self._sum = self._sum, None
        self._coming.clear()
        self._judged.clear()
        if begun is None:
            return None
        if not begun.is_of(deliveries):
            begun.cancel()
            return None
        try:
            # On its own thread, behind the sum: no other has to be woken between the two.
            return await asyncio.wrap_future(self._thread.submit(begun.publish, show))
        except (CombineFailed, BadModel, OSError, CancelledError):
            return None  # it is made once more, and then told of
        except asyncio.CancelledError:
            begun.cancel()
            raise

    def drop(self) -> None:
        begun, self._sum = self._sum, None
        if begun is not None:
            begun.cancel()

    def close(self) -> None:
        self.drop()
        self._thread.shutdown()


class _Sum:
    future: Future[Written]

    def __init__(
        self,
        config: Federation,
        store: CoordinatorBucket,
        state: State,
        expected: Sequence[Expected],
    ) -> None:
        self._config, self._store, self._round = config, store, state.round
        self.expected = list(expected)
        self._cancelled = False

    def begin(self, thread: ThreadPoolExecutor) -> None:
        self.future = thread.submit(self._make)

    def is_of(self, deliveries: Sequence[Delivery]) -> bool:
        if [delivery.round for delivery in deliveries] != [self._round] * len(self.expected):
            return False
        return all(map(Expected.is_now, self.expected, deliveries))

    def cancel(self) -> None:
        self._cancelled = True
        for update in self.expected:
            if isinstance(update.body, Upload):
                update.body.tell_readers()
        self.future.cancel()
        self.future.add_done_callback(_discard)

    # Its thread.

    def _make(self) -> Written:
        with ExitStack() as stack:
            reference = stack.enter_context(ModelFile(self._store.global_path(self._round)))
            updates = []
            for update in self.expected:
                source = stack.enter_context(self._opened(update.body))
                updates.append(ModelUpdate(update.id, update.samples, source, base=reference))
            out = self._store.new_global(self._round + 1, reference.layout)
            try:
                round_ = Closing(
                    reference,
                    weighed(updates, self._config.security.max_weight),
                    memory=None,
                    out=out,
                    memory_out=None,
                    seed=b"",
                )
                figures = self._config.aggregation.combine(round_)
            except BaseException:
                out.close()
                raise
            return Written(out, figures)

    def publish(self, show: Callable[[HashingWriter], None]) -> Made:
        """Name the model, which counts from now on."""
        written = self.future.result()
        with closing(written.out):
            show(written.out)
            digest = self._store.publish_global(self._round + 1, written.out)
            return Made(digest, written.figures)

    def _opened(self, body: Delivery | Upload) -> ModelFile:
        if isinstance(body, Delivery):
            return ModelFile(self._store.taken(body))
        return ArrivingModel(body, lambda: self._cancelled)


def _discard(done: Future[Written]) -> None:
    if not done.cancelled() and done.exception() is None:
        done.result().out.close()
