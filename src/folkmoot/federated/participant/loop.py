"""A participant's loop: register, wait to be called, train, deliver, until FINISHED.

The heartbeat runs beside the training and is held open by the coordinator, so a call arrives at
once. A coordinator that dies is waited for; what was trained meanwhile is delivered afterwards.
"""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

import grpc
import msgspec

from folkmoot.core.federation import participant as machine
from folkmoot.exchange.bucket import Bucket
from folkmoot.federated import wire
from folkmoot.federated.compression.feedback import ErrorFeedback
from folkmoot.federated.names import CARRIED
from folkmoot.federated.participant import answers, events
from folkmoot.federated.participant.bucket import ParticipantBucket, WeightsUnavailable
from folkmoot.federated.participant.carried import CarriedWeights
from folkmoot.federated.participant.connection import (
    END_TIMEOUT,
    Connection,
    Finished,
)
from folkmoot.federated.participant.known import Known
from folkmoot.federated.participant.participant import (
    FoundEvaluation,
    Participant,
    Trained,
    as_given,
    can_evaluate,
    checked_evaluation,
    checked_result,
    encode_figures,
    named,
    takes_config,
)
from folkmoot.federated.participant.policy import NotAgreed, Policy
from folkmoot.federated.participant.presigned import PresignedBucket
from folkmoot.federated.participant.secure_delivery import SecureDelivery
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.blocking import run_blocking
from folkmoot.host.clock import backoff
from folkmoot.host.event_log import EventLog
from folkmoot.host.memory import keep_memory
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks
from folkmoot.host.tls import ClientTls

_READY = {
    machine.Phase.WAITING: "READY",
    machine.Phase.TRAINING: "TRAINING",
    machine.Phase.DONE: "FINISHED",
}


logger = logging.getLogger(__name__)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the federation is and who we are."""

    address: str
    run_id: str
    # A file with our key, made when it is not there; with none, a key for this once.
    identity: str = ""
    # The bucket to use, whatever the coordinator tells; else see `policy.buckets`.
    bucket: str = ""
    bucket_options: dict[str, str] = {}
    # What we ask of the federation before we train for it.
    policy: Policy = Policy()
    # For secure aggregation: the public key in hex of everybody we agree to be summed with.
    peers: dict[str, str] = {}
    tls: ClientTls | None = None
    # A file for the log of what happens to us; with none, none is written.
    log: str = ""
    # Seconds between two attempts to reach a coordinator that does not answer, at the most.
    longest_pause: float = 10.0


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
    settings.policy.check()
    identity = Identity.load(settings.identity) if settings.identity else Identity.random()
    known = Known.beside(settings.identity, settings.run_id, settings.policy.coordinator)
    line = connect(
        settings.address, settings.run_id, identity, settings.tls, settings.longest_pause, known
    )
    line.agree = lambda welcome: _bucket_url(settings, welcome.bucket)
    line.properties = encode_figures(participant.properties())
    log = EventLog(Path(settings.log) if settings.log else None)
    ended = "interrupted"
    try:
        with contextlib.suppress(Finished):
            await line.register()
            log.write(events.Began(line.participant_id, settings.run_id))
            line.on_reconnect = lambda: log.write(events.Reconnected(line.participant_id))
            await _Participation(participant, settings, line, log).run()
        ended = "the federation has finished"
    except Exception as error:
        ended = str(error)
        raise
    finally:
        log.write(events.Ended(ended))
        log.close()
        await line.close()


def _bucket_url(settings: Settings, told: str) -> str:
    """The bucket to use: ours, or the coordinator's if we agreed to it; it may not tell any."""
    return settings.bucket or (told and settings.policy.agree_to_bucket(told))


class _Participation:
    """One participant's part in one federation."""

    def __init__(
        self, participant: Participant, settings: Settings, line: Connection, log: EventLog
    ) -> None:
        self._participant, self._line, self._log = participant, line, log
        self._settings, self._policy = settings, settings.policy
        self._bucket: ParticipantBucket | PresignedBucket | CarriedWeights | None = None
        self._state = machine.ParticipantState()
        self._heard = machine.Heard("STANDBY", -1)
        self._news = asyncio.Event()
        #: The task that came with the last news, until it is taken up.
        self._task: Any = None
        self._secure = SecureDelivery(line, settings.peers, settings.policy.demands)
        #: The last round trained, kept in case its update has to be masked or sent again.
        self._trained: Trained | None = None
        #: What compressed updates lost so far.
        self._feedback = ErrorFeedback()
        self._training: asyncio.Task[None] | None = None
        #: The last round whose update counted.
        self._delivered = -1

    async def run(self) -> None:
        """Until FINISHED, or until one of the two loops fails: its exception is ours."""
        loops = [asyncio.create_task(self._live()), asyncio.create_task(self._beat())]
        try:
            await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            for ended in filter(asyncio.Task.done, loops):
                ended.result()
        finally:
            if isinstance(self._bucket, CarriedWeights):
                self._bucket.close()
            await end_tasks(loops)

    async def _live(self) -> None:
        delays = backoff(0.5, 30.0)
        while self._state.phase != machine.Phase.DONE:
            await self._news.wait()
            self._news.clear()
            self._state, effects = machine.apply(self._state, self._heard)
            for effect in effects:
                if not isinstance(effect, machine.Train):
                    continue
                if await self._round(effect.round):
                    delays = backoff(0.5, 30.0)
                    # What was heard while we trained has not been looked at.
                    self._news.set()
                else:
                    # Nothing new may be said for a while, so look again in a while.
                    asyncio.get_running_loop().call_later(next(delays), self._news.set)

    # Heartbeats.

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before, asked = self._delivered, loop.time()
            answer = await self._line.insist(
                "Heartbeat", self._heartbeat(), self._line.heartbeat + 30.0
            )
            heard = machine.Heard(*answers.heartbeat(answer))
            if heard.expected and before != self._delivered == heard.round:
                continue  # said before our delivery was known
            if heard != self._heard:
                self._heard = heard
                self._task = answer.task if answer.HasField("task") else None
                self._news.set()
            elif loop.time() - asked < self._line.heartbeat / 4:
                # Nothing new, and not held either: we do not ask as fast as we are answered.
                await asyncio.sleep(self._line.heartbeat / 4)
            if heard.phase == "FINISHED" and self._training:
                # Nobody waits for this round any more, and the coordinator may leave.
                self._training.cancel()

    def _heartbeat(self) -> Any:
        heard, state = self._heard, self._state
        return wire.HeartbeatRequest(
            state=wire.STATE[_READY[state.phase]],
            round=state.training if state.phase == machine.Phase.TRAINING else state.trained,
            # Half of the period: what is held must end before we count as lost.
            wait_ms=round(self._line.heartbeat * 500),
            seen_state=wire.STATE[heard.phase],
            seen_round=heard.round,
            seen_expected=heard.expected,
            # The first start is asked for; after that a call to a round says it all.
            want_task=self._bucket is not None,
        )

    # A round.

    async def _round(self, round_: int) -> bool:
        """Train and deliver one round; whether it counted."""
        self._training = asyncio.create_task(self._train(round_))
        try:
            await self._training
        except asyncio.CancelledError:
            if self._heard.phase != "FINISHED":
                raise
            counted, reason = False, "the federation has finished"
        except RequestRefused as refused:
            logger.warning("round %d: %s", round_, refused)
            counted, reason = refused.code == grpc.StatusCode.ALREADY_EXISTS, str(refused)
        except WeightsUnavailable as unavailable:
            # The round may be over and its weights gone, or the bucket may come back.
            logger.warning("round %d: %s", round_, unavailable)
            counted, reason = False, str(unavailable)
        else:
            counted, reason = True, ""
        outcome = events.UpdateDelivered(round_) if counted else events.RoundFailed(round_, reason)
        self._log.write(outcome)
        if counted:
            self._delivered = round_
            if self._heard.round == round_:
                self._heard = msgspec.structs.replace(self._heard, expected=False)
        event = machine.Trained() if counted else machine.Failed()
        self._state, _ = machine.apply(self._state, event)
        return counted

    async def _train(self, round_: int) -> None:
        start = await self._start(round_)
        self._bucket = self._open(start)
        trained = self._trained
        if not start.HasField("fixed_point"):
            await self._end(round_, *await asyncio.to_thread(self._train_and_write, start))
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

    async def _start(self, round_: int) -> Any:
        """The round's task: as the call to it said, the first time, or asked for."""
        task, self._task = self._task, None
        if task is None or task.round != round_:
            request = wire.StartTrainingRoundRequest(round=round_)
            task = await self._line.insist("StartTrainingRound", request)
        trained = self._line.known.run.trained
        answers.task(task, round_, trained_before=trained > 0)
        masked = task.initial or task.HasField("fixed_point")
        noise = inf if task.initial else task.fixed_point.noise_multiplier
        self._policy.agree_to_task(masked=masked, noise=noise, epochs=task.epochs, trained=trained)
        return task

    def _open(self, start: Any) -> ParticipantBucket | PresignedBucket | CarriedWeights:
        """Where the round's weights are: behind signed URLs, or in a bucket we may use."""
        most = self._policy.most_bytes
        if start.put_url:
            agree = self._policy.agree_to_url
            get_url = agree(start.get_url, f"{start.round}/global")
            put_url = agree(start.put_url, f"{start.round}/{self._line.participant_id}")
            return PresignedBucket(get_url, put_url, most)
        if isinstance(self._bucket, ParticipantBucket | CarriedWeights):
            return self._bucket
        url = _bucket_url(self._settings, self._line.bucket)
        if url == CARRIED:
            return CarriedWeights(self._line, most)
        if not url:
            raise NotAgreed("the coordinator does not tell its bucket: give its url")
        return ParticipantBucket(Bucket(url, self._settings.bucket_options), most)

    def _train_and_write(self, start: Any) -> tuple[Trained, str, bytes]:
        """Both on one thread: a change of threads is dear beside a short round."""
        assert self._bucket is not None
        trained = self._compute(start)
        metrics = encode_figures(self._participant.metrics())
        id, arrays = self._line.participant_id, trained.arrays
        if (how := answers.compression(start)) is not None:
            arrays = self._feedback.compressed(arrays, trained.reference, how)
        return trained, metrics, self._bucket.write_update(start.round, id, arrays)

    def _compute(self, start: Any) -> Trained:
        began = time.perf_counter()
        trained = self._trained_with(start)
        seconds = round(time.perf_counter() - began, 3)
        if not start.initial:
            self._line.known.count_round(durable=self._policy.most_rounds > 0)
        self._log.write(events.RoundTrained(start.round, trained.samples, seconds))
        return trained

    def _trained_with(self, start: Any) -> Trained:
        assert self._bucket is not None
        if start.initial:
            first = named(self._participant.init_weights())
            return Trained(start.round, b"", first, {}, 0, "{}")
        weights = self._bucket.read_global(start.round, start.global_digest, start.global_stamp)
        config = answers.settings(start.config)
        found = self._evaluated(start, weights, config)
        train = self._participant.train_round
        more = {"config": config} if takes_config(train) else {}
        result = train(as_given(weights), start.epochs, start.epoch_base, **more)
        arrays, samples, history = checked_result(result)
        return Trained(start.round, start.global_digest, arrays, weights, samples, history, found)

    def _evaluated(
        self, start: Any, weights: dict[str, Any], config: dict[str, Any]
    ) -> FoundEvaluation | None:
        """What we find of the model that we were given, if we can say and are asked to."""
        if not start.evaluate or not can_evaluate(self._participant):
            return None
        evaluate: Callable[..., Any] = self._participant.evaluate
        more = {"config": config} if takes_config(evaluate) else {}
        return checked_evaluation(evaluate(as_given(weights), **more))

    async def _deliver(
        self, round_: int, arrays: Mapping[str, Any], trained: Trained, metrics: str
    ) -> None:
        """Write what is not `trained` as it is, but masked, and say so."""
        id = self._line.participant_id
        assert self._bucket is not None
        digest = await asyncio.to_thread(self._bucket.write_update, round_, id, arrays)
        await self._end(round_, trained, metrics, digest)

    async def _end(self, round_: int, trained: Trained, metrics: str, digest: bytes) -> None:
        request = wire.EndTrainingRoundRequest(
            participant_id=self._line.participant_id,
            number_samples=trained.samples,
            metrics=metrics,
            round=round_,
            digest=digest,
            history=trained.history,
        )
        if (found := trained.evaluation) is not None:
            told = wire.Evaluation(loss=found.loss, samples=found.samples, metrics=found.metrics)
            request.evaluation.CopyFrom(told)
        await self._line.insist("EndTrainingRound", request, END_TIMEOUT)
