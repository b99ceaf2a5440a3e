"""Everything that touches a client's model, in one worker thread: one thing at a time, in order.

What was begun finishes in the thread even when nobody waits for it any more; training and scoring
give up soon after they are told to.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from folkmoot.authority import Unreachable
from folkmoot.client import events
from folkmoot.client.learner import Cancelled, Learner
from folkmoot.client.results import Results
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.identity import short
from folkmoot.host.event_log import Record
from folkmoot.learning.data.source import DataError

T = TypeVar("T")

# On how much held-out text a model is scored.
EVALUATED_SEQUENCES = 16


class Training:
    """Trains, learns and scores as the machine says, and tells it what came of it."""

    def __init__(
        self,
        learner: Learner,
        results: Results,
        tell: Callable[[c.Event], None],
        emit: Callable[[Record], None],
    ) -> None:
        self.learner, self.results = learner, results
        self._tell_machine, self._emit = tell, emit
        self._worker = ThreadPoolExecutor(1, "learner")
        self._stopping = threading.Event()
        self._evaluations: tuple[tuple[str, float], ...] = ()

    async def work(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run in the worker thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._worker, function, *arguments)

    def give_up(self) -> None:
        self._stopping.set()

    async def close(self) -> None:
        self.give_up()
        await asyncio.to_thread(self._worker.shutdown)

    def train(self, action: c.Train) -> Coroutine[Any, Any, None]:
        self._stopping = threading.Event()
        return self._train(action, self._stopping.is_set)

    async def _train(self, action: c.Train, stopped: Callable[[], bool]) -> None:
        began = time.perf_counter()
        try:
            worked = await self.work(self.learner.train, action.step, action.share, stopped)
        except Cancelled:
            return
        except (FloatingPointError, DataError, OSError, Unreachable) as error:
            self._emit(events.ShareFailed(action.epoch, action.height, str(error)))
            self._tell_machine(c.NotTrained(action.epoch, action.height))
            return
        seconds = time.perf_counter() - began
        result = self.results.made(action, worked.payload)
        samples, speed = sum(len(span) for span in action.share), worked.tokens_per_second
        where = (action.epoch, action.height, action.step)
        self._emit(
            events.ShareTrained(*where, samples, worked.loss, seconds, speed, len(worked.payload))
        )
        metadata = m.WitnessMetadata(float(speed), worked.loss, self._evaluations)
        sketch = self.learner.method.sketch(worked.payload)
        self._tell_machine(c.Trained(result, speed, metadata, sketch))

    def learn(self, action: c.Learn) -> Coroutine[Any, Any, None]:
        # The bytes are taken now: by the time it begins they may have been forgotten.
        return self._learn(action, self.results.payloads(action.results))

    async def _learn(self, action: c.Learn, payloads: list[bytes]) -> None:
        began = time.perf_counter()
        learn = (payloads, action.step, action.samples)
        model_hash = await self.work(self.learner.learn, *learn)
        seconds = time.perf_counter() - began
        where = (action.epoch, action.height)
        self._emit(events.RoundLearnt(*where, len(payloads), model_hash.hex(), seconds))
        self._tell_machine(c.Learnt(*where, model_hash))

    def audit(self, action: c.Audit) -> Coroutine[Any, Any, None]:
        trials = [
            (trial, self.results.payloads((trial.result, *trial.others))) for trial in action.trials
        ]
        return self._audit(action, trials, self._stopping.is_set)

    async def _audit(
        self,
        action: c.Audit,
        trials: list[tuple[c.Trial, list[bytes]]],
        stopped: Callable[[], bool],
    ) -> None:
        """Try others' results of an earlier round while those of this one are on their way."""
        began = time.perf_counter()
        found: dict[bool, list[bytes]] = {True: [], False: []}
        for trial, (payload, *others) in trials:
            if stopped():
                return
            try:
                good = await self.work(self.learner.audit, payload, others, trial.samples)
            except (DataError, OSError, Unreachable) as error:
                self._emit(events.NotAudited(action.epoch, action.height, str(error)))
                continue
            if good is not None:
                found[good].append(trial.result.sender)
        seconds, where = time.perf_counter() - began, (action.epoch, action.height)
        passed, failed = (tuple(map(short, found[good])) for good in (True, False))
        self._emit(events.ResultsAudited(*where, passed, failed, seconds))
        self._tell_machine(c.Audited(*where, tuple(found[True]), tuple(found[False])))

    async def evaluate(self, action: c.Evaluate) -> None:
        """Score held-out text while the others' results are on their way."""
        stopped = self._stopping.is_set
        score = await self.work(self.learner.evaluate, EVALUATED_SEQUENCES, stopped)
        if score is not None:
            self._evaluations = (("held_out", score.loss),)
            self._emit(events.Evaluated(action.epoch, action.height, action.step, score.loss))
