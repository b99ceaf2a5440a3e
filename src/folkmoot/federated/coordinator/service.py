"""The coordinator's gRPC face: authenticate, ask the machine, answer.

Status codes: UNAUTHENTICATED for a bad signature, a replay or an old session; PERMISSION_DENIED for
who is unknown, expelled, not on the allow-list, or uses another's key; FAILED_PRECONDITION for the
right request at the wrong time, and for a missing object; ALREADY_EXISTS for a second, different
update; INVALID_ARGUMENT for a bad one; DATA_LOSS for a damaged one. The details say what is wrong.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NoReturn

import grpc
import grpc.aio
import msgspec

from folkmoot.core import federation as rules
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.config import Scalar
from folkmoot.core.federation.state import Delivery, Evaluation
from folkmoot.exchange.bucket import BucketError
from folkmoot.federated import wire
from folkmoot.federated.coordinator import events
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.evaluation import told_evaluation
from folkmoot.federated.coordinator.secure_rounds import refusal
from folkmoot.federated.coordinator.turns import Rate, Turns
from folkmoot.federated.coordinator.updates import Judgement, judged, judged_as_it_came, most_bytes
from folkmoot.federated.model_file.hashing_writer import HashingWriter
from folkmoot.federated.secure.messages import BadMessage
from folkmoot.federated.secure.participant_attempt import Distrust
from folkmoot.federated.signing import seal_answer, verify_request
from folkmoot.federated.transfer.listener import Asked
from folkmoot.federated.transfer.transfers import (
    NextModel,
    Sending,
    Taking,
    Telling,
    Transfer,
)
from folkmoot.federated.transfer.uploads import TOKEN_BYTES, Upload
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.signing import SESSION_BYTES, Nonces, Unauthenticated

DIGEST_BYTES = 32
MOST_PROPERTIES = 4096
#: A second, of one participant: more than rounds of a trivial model can need.
MOST_HEARTBEATS = 500
#: What participants may report: numbers by name, in lists or in tables. NaN has no other way than
#: null to travel in JSON.
Figure = float | None
Metrics = dict[str, Figure | list[Figure | list[Figure]]]
History = dict[str, list[Figure]]
Code = grpc.StatusCode

# Every other refusal is FAILED_PRECONDITION.
CODES: dict[str, grpc.StatusCode] = {
    m.Reason.UnknownParticipant: Code.PERMISSION_DENIED,
    m.Reason.Expelled: Code.PERMISSION_DENIED,
    m.Reason.DifferentUpdate: Code.ALREADY_EXISTS,
    m.Reason.BadSamples: Code.INVALID_ARGUMENT,
}


def unreadable(error: Exception) -> RequestRefused:
    return RequestRefused(Code.UNAVAILABLE, f"the bucket or the disk cannot be used: {error}")


def _properties(request: Any) -> dict[str, Scalar]:
    """What a participant says of itself."""
    if len(request.properties) > MOST_PROPERTIES:
        reason = f"properties of {len(request.properties)} bytes; at most {MOST_PROPERTIES}"
        raise RequestRefused(Code.INVALID_ARGUMENT, reason)
    try:
        return msgspec.json.decode(request.properties or "{}", type=dict[str, Scalar])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(Code.INVALID_ARGUMENT, f"properties: {error}") from None


class CoordinatorService:
    """One method for each of the wire's; `handler()` is what a gRPC server is given."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.config = coordinator.config
        self.session = secrets.token_bytes(SESSION_BYTES)
        self._nonces = Nonces()
        self._names = {bytes.fromhex(k): n for n, k in self.config.security.participants.items()}
        self._told: set[str] = set()
        #: Set when every participant has heard FINISHED.
        self.all_told = asyncio.Event()
        self._judging: dict[str, asyncio.Task[Judgement]] = {}
        self._turns, self._beats = Turns(), Rate(MOST_HEARTBEATS)
        #: The last round of which an update was carried, and how many bytes one may have.
        self._limit = (-1, 0)
        #: Where we carry weights, once we do.
        self.weights_port = 0
        #: Calls that lines hold open, by whom.
        self._calls: dict[str, Asked] = {}
        self._next: NextModel | None = None
        self._loop = asyncio.get_running_loop()
        if self.config.bucket.carried:
            coordinator.show_next = self._show_next

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            wire.SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    self._guarded(name, getattr(self, name)),
                    request_deserializer=request.FromString,
                    response_serializer=response.SerializeToString,
                )
                for name, (request, response) in wire.METHODS.items()
            },
        )

    def _guarded(
        self, method: str, call: Callable[[Any], Awaitable[Any]]
    ) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]:
        async def answer(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            try:
                return await self._answered(method, call, request)
            except RequestRefused as refusal:
                await context.abort(refusal.code, refusal.reason)

        return answer

    async def _answered(
        self, method: str, call: Callable[[Any], Awaitable[Any]], request: Any
    ) -> Any:
        """The sealed answer to a request, or `RequestRefused`."""
        count = self.coordinator.meters.requests.labels
        try:
            response = await call(request)
        except (RequestRefused, BucketError, OSError) as error:
            refusal = error if isinstance(error, RequestRefused) else unreadable(error)
            count(method, refusal.code.name).inc()
            raise refusal from None
        count(method, "OK").inc()
        if method != "Status":  # that is open to everybody, and not signed for either
            seal_answer(self.coordinator.identity, method, request, response)
        return response

    # The four methods, and one for onlookers.

    async def Rendezvous(self, request: Any) -> Any:
        key = self._proven("Rendezvous", request, session_known=False)
        id = self._named(key)
        reply = wire.LATER
        if request.proof.session == self.session:
            effects = self.coordinator.submit(m.Rendezvous(id, _properties(request)))
            self._refuse(effects)
            accepted = any(isinstance(e, m.Reply) and e.reply == "ACCEPT" for e in effects)
            reply = wire.ACCEPT if accepted else wire.LATER
            self.coordinator.heard(id)
        return wire.RendezvousResponse(
            reply=reply,
            participant_id=id,
            session=self.session,
            heartbeat_ms=round(self.config.rounds.heartbeat_time * 1000),
            state=wire.STATE[self.coordinator.state.phase],
            bucket=self._bucket(),
            weights_port=self.weights_port,
        )

    async def Heartbeat(self, request: Any, call: Asked | None = None) -> Any:
        """`call` is what a line holds open for it."""
        id = self._named(self._proven("Heartbeat", request))
        seen = rules.Advert(
            wire.STATE_NAME.get(request.seen_state, ""), request.seen_round, request.seen_expected
        )
        if self._beats.exceeded(id, self._loop.time()):
            reason = f"{id} sends more than {MOST_HEARTBEATS} heartbeats a second"
            raise RequestRefused(Code.RESOURCE_EXHAUSTED, reason)
        return await self._news(id, seen, request, call, with_task=request.want_task)

    async def _news(
        self,
        id: str,
        seen: rules.Advert,
        request: Any,
        call: Asked | None = None,
        *,
        with_task: bool = True,
    ) -> Any:
        """What `id` is told when that is no longer what it has seen, or it waits no longer."""
        loop = self._loop
        until = loop.time() + min(request.wait_ms / 1000, self.config.rounds.heartbeat_time)
        latest = True
        while True:
            advert = self._asked(rules.advert(self.coordinator.state, id))
            self.coordinator.heard(id)
            left = until - loop.time()
            # That our own delivery is known now is no news to the one who made it.
            news = advert[:2] != seen[:2] or (advert.expected and not seen.expected)
            if news or left <= 0 or not latest:
                if advert.phase == rules.Phase.FINISHED and call is None:
                    self._tell_end(id)
                return wire.HeartbeatResponse(
                    state=wire.STATE[advert.phase],
                    round=advert.round,
                    expected=advert.expected,
                    task=self._task(id) if with_task and advert.expected else None,
                )
            if call is not None:
                self._hold(id, call)
            latest = await self.coordinator.changed(id, left)

    async def StartTrainingRound(self, request: Any) -> Any:
        id = self._named(self._proven("StartTrainingRound", request))
        self.coordinator.heard(id)
        task = self._task(id)
        if request.round != task.round:
            raise RequestRefused(
                Code.FAILED_PRECONDITION,
                f"round {request.round} is not in progress; it is round {task.round}",
            )
        return task

    def _task(self, id: str) -> Any:
        """What `id` is to do in this round."""
        task = self._asked(rules.task(self.coordinator.state, id))
        return wire.StartTrainingRoundResponse(
            fixed_point=self._fixed_point(),
            epochs=task.epochs,
            epoch_base=task.epoch_base,
            round=task.round,
            initial=task.initial,
            global_digest=bytes.fromhex(task.global_digest),
            global_stamp=self.coordinator.store.global_stamp(task.round),
            evaluate=not task.initial and self._asks_for_evaluation(task.round),
            config=self._settings_of(id, task.round),
            compression=None if task.initial else self._compression(id),
            **self._signed_urls(id, task.round),
        )

    def _asks_for_evaluation(self, round_: int) -> bool:
        above = self.coordinator.state.above
        return above.evaluate if above else self.config.evaluation.asks_in(round_)

    def _compression(self, id: str) -> Any:
        how = self.config.compression
        if how.method == "none" or id in self.config.security.aggregators:
            return None
        return wire.Compression(method=how.method, keep=how.keep)

    def _settings_of(self, id: str, round_: int) -> str:
        if above := self.coordinator.state.above:
            return above.settings
        own = self.config.aggregation.settings(round_, id)
        given = {**self.config.settings, **own}
        return msgspec.json.encode(given).decode() if given else ""

    def _signed_urls(self, id: str, round_: int) -> dict[str, str]:
        """What lets a participant read one object and write one, if it has no other right."""
        if not self.config.bucket.presign:
            return {}
        seconds = self.config.bucket.presign_seconds
        get, put = self.coordinator.store.signed_urls(round_, id, seconds)
        return {"get_url": get, "put_url": put}

    async def EndTrainingRound(self, request: Any, call: Asked | None = None) -> Any:
        """`call` as of a heartbeat."""
        id = self._named(self._proven("EndTrainingRound", request))
        self.coordinator.heard(id)
        answer = await self._ended(id, request)
        if request.wait_ms and not self._beats.exceeded(id, self._loop.time()):
            seen = rules.Advert(rules.Phase.ROUND, request.round, expected=False)
            # Who is told no news, since it has to leave say, hears why when it asks again.
            with contextlib.suppress(RequestRefused):
                answer.news.CopyFrom(await self._news(id, seen, request, call))
        return answer

    async def _ended(self, id: str, request: Any) -> Any:
        delivery = self._announced(id, request)
        fields = (id, delivery.round, delivery.digest, delivery.samples)
        if answer := rules.admits(self.coordinator.state, *fields):
            self._refuse((answer,))
            return wire.EndTrainingRoundResponse(again=True)
        secure = self.coordinator.secure
        if secure.applies() and (reason := secure.admits(id)):
            raise RequestRefused(Code.FAILED_PRECONDITION, reason)
        # One at a time: what is announced meanwhile is judged when the first is, or refused.
        async with self._turns.of(delivery.key):
            return await self._delivered(delivery, request)

    async def _delivered(self, delivery: Delivery, request: Any) -> Any:
        fields = (delivery.id, delivery.round, delivery.digest, delivery.samples)
        if answer := rules.admits(self.coordinator.state, *fields):
            self._refuse((answer,))
            return wire.EndTrainingRoundResponse(again=True)
        judgement = self._judged_as_it_came(delivery) or await self._judge(delivery)
        if judgement.reason:
            self._reject(delivery, judgement)
        evaluation = self._told_evaluation(delivery, request)
        delivered = m.Delivered(*fields, evaluation, delivery.participants)
        self.coordinator.early.note_judged(delivery)
        effects = await self.coordinator.submit_together(delivered)
        self._refuse(effects)
        again = any(isinstance(e, m.Counted) and e.again for e in effects)
        if not again:
            self._report(delivery, request)
        return wire.EndTrainingRoundResponse(again=again)

    async def SecureStep(self, request: Any) -> Any:
        id = self._named(self._proven("SecureStep", request))
        self.coordinator.heard(id)
        advert = self._asked(rules.advert(self.coordinator.state, id))
        if advert.phase != rules.Phase.ROUND or not self.coordinator.secure.applies():
            reason = f"{id} takes part in no secure aggregation now: it hears {advert.phase}"
            raise RequestRefused(Code.FAILED_PRECONDITION, reason)
        patience = min(request.wait_ms / 1000, self.config.rounds.heartbeat_time)
        try:
            answer = await self.coordinator.secure.step(id, request, patience)
        except (BadMessage, Distrust) as error:
            raise RequestRefused(Code.INVALID_ARGUMENT, refusal(error)) from None
        self.coordinator.heard(id)
        return wire.SecureStepResponse(
            step=answer.step, attempt=answer.attempt, payload=answer.payload
        )

    def _fixed_point(self) -> Any:
        """How an update is masked in this round, if it is."""
        if not self.coordinator.secure.applies():
            return None
        secure = self.config.secure
        private = self.config.private_sum
        return wire.FixedPoint(
            limit=secure.limit,
            fraction_bits=secure.fraction_bits,
            max_samples=secure.max_samples,
            clip_norm=private.clip_norm if private else 0.0,
            noise_multiplier=private.noise_multiplier if private else 0.0,
        )

    async def Status(self, request: Any) -> Any:
        state = self.coordinator.state
        return wire.StatusResponse(
            state=wire.STATE[state.phase],
            round=state.round,
            run_id=self.config.run_id,
            rounds=state.rules.rounds,
            connected=len(state.members),
            needed=state.rules.min_connected,
            selected=len(state.selected),
            delivered=len(state.deliveries),
            goal=state.goal,
            quarantined=len(state.quarantined),
            epoch_base=state.epoch_base,
        )

    # Weights that we carry ourselves.

    async def grant(self, request: Any, asked: Asked) -> Transfer:
        """What a line that carries weights may do, by the same rules as the methods above."""
        kind = request.WhichOneof("what")
        if kind == "fetch":
            return self._grant_fetch(request.fetch)
        if kind == "store":
            return self._grant_store(request.store)
        if kind == "end":
            return await self._grant_held("EndTrainingRound", kind, request.end, asked)
        if kind == "call":
            return await self._grant_held("Heartbeat", kind, request.call, asked)
        known = "fetch, store, end and call"
        raise RequestRefused(Code.UNIMPLEMENTED, f"this coordinator knows {known}")

    async def _grant_held(self, method: str, kind: str, request: Any, asked: Asked) -> Transfer:
        """What may wait for news; the round's model goes with those that call to it, or before."""
        try:
            call = partial(getattr(self, method), call=asked)
            heard = await self._answered(method, call, request)
        finally:
            id = self._names.get(request.proof.public_key, request.proof.public_key.hex())
            if self._calls.get(id) is asked:
                del self._calls[id]
        answer = wire.TransferAnswer(**{kind: heard})
        news = heard if kind == "call" else heard.news
        if news.state == wire.STATE[rules.Phase.FINISHED]:
            # We leave when all have heard it, and lines end with us: what is sent is heard.
            heard_it = partial(self._loop.call_soon_threadsafe, self._tell_end, id)
            return Telling(answer, heard_it)
        if not news.HasField("task") or news.task.initial:
            return Telling(answer)
        if asked.digest_ahead == news.task.global_digest.hex():
            return Telling(answer)
        return Sending(self.coordinator.store.global_target(news.task.round), 0, answer)

    def _hold(self, id: str, call: Asked) -> None:
        """Keep a call until there is news, and send it what is there of them."""
        self._calls[id] = call
        state, model = self.coordinator.state, self._next
        if model is not None and model.round == state.round + 1 and id in model.ids:
            call.send_ahead(model.sending())

    def _show_next(self, round_: int, ids: tuple[str, ...], model: HashingWriter) -> None:
        """Give the next model to those who wait to be called to it. On another thread."""
        shown = NextModel(round_, ids, model.open_unnamed(), model.digest().hex())
        self._loop.call_soon_threadsafe(self._send_next, shown)

    def _send_next(self, model: NextModel) -> None:
        self.close()
        self._next = model
        for id in model.ids:
            if call := self._calls.get(id):
                call.send_ahead(model.sending())

    def close(self) -> None:
        """Let the next model go; who is being sent it has a hold of its own."""
        if self._next is not None:
            self._next.file.close()
            self._next = None

    def _grant_fetch(self, request: Any) -> Transfer:
        id = self._named(self._proven("Fetch", request))
        self.coordinator.heard(id)
        task = self._asked(rules.task(self.coordinator.state, id))
        if request.round != task.round or task.initial:
            reason = f"there is no global model of round {request.round} to train now"
            raise RequestRefused(Code.FAILED_PRECONDITION, reason)
        return Sending(self.coordinator.store.global_target(task.round), request.offset)

    def _grant_store(self, request: Any) -> Transfer:
        id, c = self._named(self._proven("Store", request)), self.coordinator
        c.heard(id)
        if not c.store.carried:
            raise RequestRefused(Code.UNIMPLEMENTED, "this coordinator carries no weights")
        if len(request.token) != TOKEN_BYTES:
            raise RequestRefused(Code.INVALID_ARGUMENT, f"a token has {TOKEN_BYTES} bytes")
        self._refuse((rules.admits(c.state, id, request.round, "", 1),))
        known, limit = self._limit
        aggregator = id in self.config.security.aggregators
        if known != request.round or aggregator:
            # A header is read sooner than a thread is woken.
            limit = self._most_bytes(request.round, id)
        if not aggregator:
            self._limit = request.round, limit
        if not 0 < request.size <= limit:
            reason = f"an update of {request.size} bytes; at most {limit}"
            raise RequestRefused(Code.INVALID_ARGUMENT, reason)
        key = f"{request.round}/{id}"
        held = {token.split()[1] for token in self._judging if token.split()[0] == key}
        upload = c.store.uploads.begin(key, request.token, request.size, held)
        c.early.note(request.round, id, upload, request.number_samples)
        return Taking(upload, ahead=request.ahead)

    def _most_bytes(self, round_: int, id: str) -> int:
        c = self.coordinator
        if c.state.initial_round:
            return self.config.bucket.max_object
        return most_bytes(self.config, c.store.global_layout(round_), id)

    def _bucket(self) -> str:
        if self.config.bucket.carried:
            return self.config.bucket.url
        told = self.config.bucket.tell and not self.config.bucket.presign
        return self.config.bucket.url if told else ""

    def _tell_end(self, id: str) -> None:
        """Note who has heard that it is over."""
        self._told.add(id)
        if self._told.issuperset(self.coordinator.state.members):
            self.all_told.set()

    # Who speaks.

    def _proven(self, method: str, request: Any, *, session_known: bool = True) -> bytes:
        """The key that signed the request, once, for this run and session."""
        try:
            key = verify_request(method, request)
            if request.run_id != self.config.run_id:
                raise Unauthenticated(f"this is run {self.config.run_id!r}, not {request.run_id!r}")
            if request.proof.session == self.session:
                self._nonces.take(key, request.proof.nonce)
            elif session_known:
                raise Unauthenticated("the coordinator started again: rendezvous again")
        except Unauthenticated as error:
            raise RequestRefused(Code.UNAUTHENTICATED, str(error)) from None
        return key

    def _named(self, key: bytes) -> str:
        if not self._names:
            return key.hex()
        if name := self._names.get(key):
            return name
        raise RequestRefused(
            Code.PERMISSION_DENIED,
            f"the key {key.hex()} is not on the allow-list of {self.config.run_id!r}",
        )

    # Answers.

    def _asked(self, answer: Any) -> Any:
        self._refuse((answer,))
        return answer

    def _refuse(self, effects: tuple[Any, ...]) -> None:
        for effect in effects:
            if isinstance(effect, m.Refused):
                code = CODES.get(effect.code, Code.FAILED_PRECONDITION)
                raise RequestRefused(code, effect.reason)

    def _announced(self, id: str, request: Any) -> Delivery:
        if request.participant_id not in ("", id):
            raise RequestRefused(
                Code.PERMISSION_DENIED,
                f"{id} cannot deliver for {request.participant_id[:128]!r}: its key is "
                f"{request.round}/{id}",
            )
        if len(request.digest) != DIGEST_BYTES:
            raise RequestRefused(Code.INVALID_ARGUMENT, f"a digest has {DIGEST_BYTES} bytes")
        told = (request.number_samples, None, self._speaks_for(id, request.participants))
        return Delivery(id, request.round, request.digest.hex(), *told)

    def _speaks_for(self, id: str, participants: int) -> int:
        """Of how many updates `id` may deliver the sum; 0 for a participant's own update."""
        most = self.config.security.aggregators.get(id, 0)
        if most and not participants:
            reason = f"{id} is an aggregator here, and this is no sum: use `federate aggregate`"
            raise RequestRefused(Code.INVALID_ARGUMENT, reason)
        if participants > most:
            may = f"for {most} at the most" if most else "for itself: it is no aggregator here"
            reason = f"{id} delivers for {participants} participants; it may speak {may}"
            raise RequestRefused(Code.PERMISSION_DENIED, reason)
        return participants

    def _judged_as_it_came(self, delivery: Delivery) -> Judgement | None:
        """Of a body that was looked through on its way, if that is all there is to look at."""
        c = self.coordinator
        if not self._is_plain(delivery):
            return None
        try:
            layout = c.store.finite_layout(delivery)
            return judged_as_it_came(c.store, c.state, delivery, layout) if layout else None
        except OSError as error:
            raise unreadable(error) from None

    async def _judge(self, delivery: Delivery) -> Judgement:
        """Judge an update once, however many times its sender asks meanwhile."""
        token = f"{delivery.key} {delivery.digest} {delivery.samples}"
        task = self._judging.get(token)
        if task is None:
            task = asyncio.create_task(self._take_and_check(delivery))
            self._judging[token] = task
            task.add_done_callback(lambda _: self._judging.pop(token, None))
        # Shielded: a caller that goes away must not leave the check half done for the other.
        return await asyncio.shield(task)

    async def _take_and_check(self, delivery: Delivery) -> Judgement:
        c, loop = self.coordinator, asyncio.get_running_loop()

        def arriving(upload: Upload) -> None:
            told = delivery.round, delivery.id, upload, delivery.samples
            loop.call_soon_threadsafe(c.early.note, *told)

        try:
            return await c.run(judged, c.config, c.store, c.state, delivery, arriving)
        except (BucketError, OSError) as error:
            raise unreadable(error) from None

    def _is_plain(self, delivery: Delivery) -> bool:
        """Whether its body is a model as it is, not masked, not a sum, not a step in few bytes."""
        packed = self.config.compression.method != "none" or self.config.secure.enabled
        return not packed and not delivery.participants

    def _reject(self, delivery: Delivery, judged: Judgement) -> NoReturn:
        self.coordinator.log.write(events.UpdateRefused(delivery.id, delivery.round, judged.reason))
        if judged.strike:
            self.coordinator.submit(m.Quarantined(delivery.id, delivery.round, judged.reason))
        if judged.missing:
            raise RequestRefused(Code.FAILED_PRECONDITION, judged.reason)
        raise RequestRefused(
            Code.DATA_LOSS if judged.damaged else Code.INVALID_ARGUMENT, judged.reason
        )

    def _told_evaluation(self, delivery: Delivery, request: Any) -> Evaluation | None:
        """What the sender found of its global model; what makes no sense costs no update."""
        if not request.HasField("evaluation") or self.coordinator.state.initial_round:
            return None
        try:
            found, metrics = told_evaluation(request.evaluation)
        except (ValueError, msgspec.DecodeError, RecursionError) as error:
            refused = events.ReportRefused(delivery.id, delivery.round, str(error))
            self.coordinator.log.write(refused)
            return None
        self.coordinator.reported.add(delivery.round, found.samples, metrics)
        return found

    def _report(self, delivery: Delivery, request: Any) -> None:
        log = self.coordinator.log
        try:
            metrics = msgspec.json.decode(request.metrics or "{}", type=Metrics)
            history = msgspec.json.decode(request.history or "{}", type=History)
        except (msgspec.DecodeError, RecursionError) as error:
            log.write(events.ReportRefused(delivery.id, delivery.round, str(error)))
            return
        log.write(events.Reported(delivery.id, delivery.round, delivery.samples, metrics, history))
