"""A participant that trains with its owner's code, until the federation has finished.

When the round that it trains is called again, because its masks failed say, nothing is trained
again.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from folkmoot.federated.compression.feedback import ErrorFeedback
from folkmoot.federated.participant import answers, events
from folkmoot.federated.participant.carried import CarriedWeights
from folkmoot.federated.participant.connection import END_TIMEOUT, Connection
from folkmoot.federated.participant.participant import (
    FoundEvaluation,
    Participant,
    RoundResult,
    as_given,
    can_evaluate,
    checked_evaluation,
    checked_result,
    encode_figures,
    named,
    takes_config,
)
from folkmoot.federated.participant.participation import Participation, stay
from folkmoot.federated.participant.participation import Settings as Settings
from folkmoot.federated.participant.secure_delivery import SecureDelivery
from folkmoot.host.blocking import run_blocking
from folkmoot.host.event_log import EventLog
from folkmoot.host.memory import keep_memory


def join_federation(participant: Participant, **settings: Any) -> None:
    """Take part until the federation has finished. Blocks; `settings` as in `Settings`."""
    keep_memory()
    # What is there now stays to the end: no collection between rounds has to look at it again.
    gc.collect()
    gc.freeze()
    try:
        run_blocking(take_part(participant, Settings(**settings)))
    finally:
        gc.unfreeze()


async def take_part(
    participant: Participant,
    settings: Settings,
    connect: Callable[..., Connection] = Connection,
) -> None:
    """Take part until the federation has finished."""
    properties = participant.properties()
    make = partial(_Training, participant)
    await stay(settings, properties, make, connect)


class _Training(Participation):
    """The part of a participant that trains with its owner's code."""

    def __init__(
        self, participant: Participant, settings: Settings, line: Connection, log: EventLog
    ) -> None:
        super().__init__(settings, line, log)
        self._participant = participant
        #: Whether the owner's methods want the round's settings: a signature is dear to look at.
        self._train_wants_config = takes_config(participant.train_round)
        self._evaluate_wants_config = takes_config(participant.evaluate)
        self._secure = SecureDelivery(line, settings.peers, settings.policy.demands)
        #: The last round trained, kept in case its update has to be masked or sent again.
        self._trained: RoundResult | None = None
        #: What compressed updates lost so far.
        self._feedback = ErrorFeedback()

    async def _train(self, round_: int) -> None:
        start = await self._start(round_)
        self._bucket = self._open(start)
        trained = self._trained
        if not start.HasField("fixed_point"):
            if (end := await asyncio.to_thread(self._train_and_write, start)) is not None:
                self._speak()
                self._heard_end(await self._line.insist("EndTrainingRound", end, END_TIMEOUT))
            return
        if trained is None or trained.digest != start.global_digest or trained.round != round_:
            trained = await asyncio.to_thread(self._compute, start)
        metrics = encode_figures(self._participant.metrics())
        self._trained = trained
        if start.fixed_point.clip_norm:  # all count the same, and nobody needs to know more
            trained = trained._replace(samples=1)
        await self._secure.deliver(
            start, trained, lambda masked: self._deliver(round_, masked, trained, metrics)
        )

    def _train_and_write(self, start: Any) -> Any:
        """Both on one thread: a change of threads is dear beside a short round.

        What is still to be said of it, if anything.
        """
        assert self._bucket is not None
        trained = self._compute(start)
        metrics = encode_figures(self._participant.metrics())
        id, arrays = self._line.participant_id, trained.arrays
        if (how := answers.compression(start)) is not None:
            arrays = self._feedback.compressed(arrays, trained.reference, how)
        end = self._ending(start.round, trained, metrics)
        end.wait_ms = round(self._short * 1000)
        self._speak()
        if isinstance(self._bucket, CarriedWeights):
            return None if self._heard_end(self._bucket.deliver(arrays, end)) else end
        end.digest = self._bucket.write_update(start.round, id, arrays)
        return end

    def _compute(self, start: Any) -> RoundResult:
        began = time.perf_counter()
        trained = self._trained_with(start)
        seconds = round(time.perf_counter() - began, 3)
        if not start.initial:
            self._line.known.count_round(durable=self._policy.most_rounds > 0)
        self._log.write(events.RoundTrained(start.round, trained.samples, seconds))
        return trained

    def _trained_with(self, start: Any) -> RoundResult:
        assert self._bucket is not None
        if start.initial:
            first = named(self._participant.init_weights())
            return RoundResult(start.round, b"", first, {}, 0, "{}")
        weights = self._bucket.read_global(start.round, start.global_digest, start.global_stamp)
        config = answers.settings(start.config)
        found = self._evaluated(start, weights, config)
        train: Callable[..., Any] = self._participant.train_round
        more = {"config": config} if self._train_wants_config else {}
        result = train(as_given(weights), start.epochs, start.epoch_base, **more)
        arrays, samples, history = checked_result(result)
        return RoundResult(
            start.round, start.global_digest, arrays, weights, samples, history, found
        )

    def _evaluated(
        self, start: Any, weights: dict[str, Any], config: dict[str, Any]
    ) -> FoundEvaluation | None:
        """What we find of the model that we were given, if we can say and are asked to."""
        if not start.evaluate or not can_evaluate(self._participant):
            return None
        evaluate: Callable[..., Any] = self._participant.evaluate
        more = {"config": config} if self._evaluate_wants_config else {}
        return checked_evaluation(evaluate(as_given(weights), **more))

    async def _deliver(
        self, round_: int, arrays: Mapping[str, Any], trained: RoundResult, metrics: str
    ) -> None:
        """Write what is not `trained` as it is, but masked, and say so."""
        id = self._line.participant_id
        assert self._bucket is not None
        digest = await asyncio.to_thread(self._bucket.write_update, round_, id, arrays)
        await self._end(round_, trained, metrics, digest)
