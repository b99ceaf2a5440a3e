"""One participant's part in a federation: register, wait to be called, do a round, until FINISHED.

The heartbeat runs beside the round and is held open by the coordinator, so a call arrives at once.
A coordinator that dies is waited for; what was made meanwhile is delivered afterwards. What a round
is, training with an owner's code or the sum of an aggregator, is for `_train` of a subclass.
"""

import asyncio
import contextlib
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
from folkmoot.federated.participant.participant import RoundResult, encode_figures
from folkmoot.federated.participant.policy import NotAgreed, Policy
from folkmoot.federated.participant.presigned import PresignedBucket, kept_connections
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.clock import backoff
from folkmoot.host.event_log import EventLog
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import run_until_one_ends
from folkmoot.host.tls import ClientTls

_READY = {
    machine.Phase.WAITING: "READY",
    machine.Phase.TRAINING: "TRAINING",
    machine.Phase.DONE: "FINISHED",
}
#: Seconds that may pass between an answer and a heartbeat while we are at work on a round. Nor are
#: we held longer for what comes after it: then we do not know whether it counted, either.
SHORT_ROUND = 1.0

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


async def stay(
    settings: Settings,
    properties: Mapping[str, Any],
    make: "Callable[[Settings, Connection, EventLog], Participation]",
    connect: Callable[..., Connection] = Connection,
) -> None:
    """Register, and do what `make` makes until the federation has finished."""
    settings.policy.check()
    identity = Identity.load(settings.identity) if settings.identity else Identity.random()
    known = Known.beside(settings.identity, settings.run_id, settings.policy.coordinator)
    line = connect(
        settings.address, settings.run_id, identity, settings.tls, settings.longest_pause, known
    )
    line.agree = lambda welcome: _bucket_url(settings, welcome.bucket)
    line.properties = encode_figures(properties)
    log = EventLog(Path(settings.log) if settings.log else None)
    ended = "interrupted"
    try:
        with contextlib.suppress(Finished):
            await line.register()
            log.write(events.Began(line.participant_id, settings.run_id))
            line.on_reconnect = lambda: log.write(events.Reconnected(line.participant_id))
            await make(settings, line, log).run()
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


class Participation:
    """One participant's part in one federation: when a round is due, `_train` does it."""

    def __init__(self, settings: Settings, line: Connection, log: EventLog) -> None:
        self._line, self._log = line, log
        self._settings, self._policy = settings, settings.policy
        self._bucket: ParticipantBucket | PresignedBucket | CarriedWeights | None = None
        #: To the server of signed URLs, where weights go through some.
        self._connections = kept_connections()
        self._state = machine.ParticipantState()
        self._heard = machine.Heard("STANDBY", -1)
        self._news = asyncio.Event()
        #: Set while there is nothing to do but to wait for news.
        self._idle = asyncio.Event()
        #: The task that came with the last news, until it is taken up.
        self._task: Any = None
        #: When we and the coordinator spoke last.
        self._spoke_at = -inf
        #: What it said when it took our update, until that is counted here too.
        self._later: Any = None
        self._training: asyncio.Task[None] | None = None
        #: Whether it was ended because nobody waits for it any more.
        self._given_up = False
        #: The last round whose update counted.
        self._delivered = -1

    async def run(self) -> None:
        """Until FINISHED, or until one of the two loops fails: its exception is ours."""
        try:
            await run_until_one_ends(self._live(), self._beat())
        finally:
            if isinstance(self._bucket, CarriedWeights):
                self._bucket.close()
            self._connections.close()

    async def _live(self) -> None:
        delays = backoff(0.5, 30.0)
        while self._state.phase != machine.Phase.DONE:
            if not self._news.is_set():
                self._idle.set()
            await self._news.wait()
            self._idle.clear()
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
            await self._short_round_over()
            before, asked = self._delivered, loop.time()
            answer = await self._heartbeat_answer()
            heard = machine.Heard(*answers.heartbeat(answer))
            if heard.expected and before != self._delivered == heard.round:
                continue  # said before our delivery was known
            if not self._hear(heard, answer) and loop.time() - asked < self._line.heartbeat / 4:
                # Nothing new, and not held either: we do not ask as fast as we are answered.
                await asyncio.sleep(self._line.heartbeat / 4)
            if self._training and self._is_vain(heard):
                self._given_up = True
                self._training.cancel()

    def _hear(self, heard: machine.Heard, answer: Any) -> bool:
        """Note what we are told; whether it is news."""
        self._speak()
        if heard == self._heard:
            return False
        self._heard = heard
        self._task = answer.task if answer.HasField("task") else None
        self._idle.clear()
        self._news.set()
        return True

    def _speak(self) -> None:
        """From whatever thread."""
        self._spoke_at = time.monotonic()

    @property
    def _short(self) -> float:
        return min(SHORT_ROUND, self._line.heartbeat / 4)

    async def _short_round_over(self) -> None:
        """Who is at work on a round says so after a while; a short one is its own sign of life."""
        while (
            not self._idle.is_set()
            and (left := self._spoke_at + self._short - time.monotonic()) > 0
        ):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._idle.wait()

    async def _heartbeat_answer(self) -> Any:
        """Over the line that carries weights while there is nothing on it, else over gRPC."""
        patience = self._line.heartbeat + 30.0
        if isinstance(self._bucket, CarriedWeights) and self._idle.is_set():
            call = asyncio.to_thread(self._bucket.call, self._heartbeat(), patience)
            if (answer := await call) is not None:
                return answer
        return await self._line.insist("Heartbeat", self._heartbeat(), patience)

    def _is_vain(self, heard: machine.Heard) -> bool:
        """Whether nobody waits for the round in training; then the coordinator may leave, too."""
        return heard.phase == "FINISHED"

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
        self._given_up, self._later = False, None
        self._training = asyncio.create_task(self._train(round_))
        try:
            await self._training
        except asyncio.CancelledError:
            if not self._given_up:
                raise
            counted, reason = False, "nobody waits for it any more"
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
        if self._later is not None:
            self._hear(machine.Heard(*answers.heartbeat(self._later)), self._later)
        return counted

    async def _train(self, round_: int) -> None:
        """Do one round and deliver what comes of it."""
        raise NotImplementedError

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
            return PresignedBucket(get_url, put_url, most, self._connections)
        if isinstance(self._bucket, ParticipantBucket | CarriedWeights):
            return self._bucket
        url = _bucket_url(self._settings, self._line.bucket)
        if url == CARRIED:
            return CarriedWeights(self._line, most)
        if not url:
            raise NotAgreed("the coordinator does not tell its bucket: give its url")
        return ParticipantBucket(Bucket(url, self._settings.bucket_options), most)

    async def _end(
        self, round_: int, trained: RoundResult, metrics: str, digest: bytes, participants: int = 0
    ) -> None:
        request = self._ending(round_, trained, metrics, participants)
        request.digest = digest
        await self._line.insist("EndTrainingRound", request, END_TIMEOUT)

    def _heard_end(self, answer: Any) -> bool:
        """Note what comes next, if what we delivered was answered: that saves a heartbeat."""
        if answer is not None and answer.HasField("news"):
            self._later = answer.news
        return answer is not None

    def _ending(
        self, round_: int, trained: RoundResult, metrics: str, participants: int = 0
    ) -> Any:
        """What is said of an update, but for its digest."""
        request = wire.EndTrainingRoundRequest(
            participant_id=self._line.participant_id,
            number_samples=trained.samples,
            metrics=metrics,
            round=round_,
            history=trained.history,
            participants=participants,
        )
        if (found := trained.evaluation) is not None:
            told = wire.Evaluation(loss=found.loss, samples=found.samples, metrics=found.metrics)
            request.evaluation.CopyFrom(told)
        return request
