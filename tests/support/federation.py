"""A federation for tests: a real coordinator on a free port, and participants moved by hand."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec
import numpy as np

from folkmoot.core.federation import Rules, State
from folkmoot.core.federation import messages as m
from folkmoot.exchange.bucket import Bucket
from folkmoot.federated import wire
from folkmoot.federated.coordinator.config import (
    BESIDE_JOURNAL,
    Federation,
    SecurityConfig,
    ServerConfig,
    rooted,
)
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.server import serving
from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.names import CARRIED
from folkmoot.federated.participant.bucket import ParticipantBucket
from folkmoot.federated.participant.carried import CarriedWeights
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.participant.policy import ALL, Policy
from folkmoot.host.durable import Step
from folkmoot.host.signing import Identity
from folkmoot.observe.logs import read_log
from support.certificates import LoopbackAuthority

RUN = "test"
SEED = "5eed" * 16
#: Of a participant whose owner is the coordinator's too.
AGREES = Policy(buckets=(ALL,))
R = TypeVar("R")


def federation_config(folder: Path, rules: dict[str, Any], **sections: Any) -> Federation:
    sections.setdefault("server", ServerConfig(port=0, state="state"))
    sections.setdefault("seed", SEED)
    config = Federation(run_id=RUN, rounds=Rules(**{"rounds": 2, **rules}), **sections)
    return rooted(config, folder, BESIDE_JOURNAL)


def carried(folder: Path, **rules: Any) -> Federation:
    """Whose coordinator carries the weights."""
    return with_bucket(federation_config(folder, rules), url=CARRIED)


class PlusOne(Participant):
    """Adds one to every weight."""

    def __init__(self, size: int = 1, samples: int = 1) -> None:
        self.size, self.samples = size, samples

    def init_weights(self) -> np.ndarray:
        return np.zeros(self.size, np.float32)

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        return weights + np.float32(1), self.samples, {}


def identity(name: str) -> Identity:
    """The same key for the same name."""
    return Identity(name.encode().ljust(32, b"\0"))


class Watched(Coordinator):
    """A coordinator whose state can be waited for."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.seen: list[m.Effect] = []
        self._changed = asyncio.Condition()
        self._notices: set[asyncio.Task[None]] = set()

    def _act(self, step: Step) -> None:
        super()._act(step)
        self.seen += step.effects
        notice = asyncio.get_running_loop().create_task(self._notify())
        self._notices.add(notice)
        notice.add_done_callback(self._notices.discard)

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, holds: Callable[[State], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: holds(self.state))


class ManualParticipant(Connection):
    """A participant that does exactly what a test says."""

    weights: ParticipantBucket

    async def rendezvous(self) -> Any:
        """As the SDK does it: the first call learns the session, the second registers."""
        answer = await self.call("Rendezvous", wire.RendezvousRequest())
        if answer.session != self.session:
            self.session = answer.session
            answer = await self.call("Rendezvous", wire.RendezvousRequest())
        self.participant_id = answer.participant_id
        return answer

    async def beat(self, **fields: Any) -> tuple[str, int]:
        request = wire.HeartbeatRequest(**{"state": wire.STATE["READY"], "round": -1, **fields})
        answer = await self.call("Heartbeat", request)
        return wire.STATE_NAME[answer.state], answer.round

    async def beat_for_ever(self) -> None:
        while True:
            try:
                await self.beat(wait_ms=50, seen_state=1, seen_round=0, seen_expected=True)
            except grpc.aio.AioRpcError as error:
                # It beats too often for anybody.
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise

    async def start(self, round_: int = 0) -> Any:
        request = wire.StartTrainingRoundRequest(round=round_)
        return await self.call("StartTrainingRound", request)

    def upload(self, values: Any, round_: int = 0) -> bytes:
        arrays = values if isinstance(values, dict) else {"weights": floats(values)}
        return self.weights.write_update(round_, self.participant_id, arrays)

    async def end(self, digest: bytes, round_: int = 0, samples: int = 1, **fields: Any) -> Any:
        request = wire.EndTrainingRoundRequest(
            **{
                "participant_id": self.participant_id,
                "number_samples": samples,
                "round": round_,
                "digest": digest,
                **fields,
            }
        )
        return await self.call("EndTrainingRound", request)

    async def deliver(self, values: Any, round_: int = 0, samples: int = 1, **fields: Any) -> Any:
        return await self.end(self.upload(values, round_), round_, samples, **fields)


class RunningFederation:
    def __init__(self, server: Any) -> None:
        self.server = server
        self.coordinator: Watched = server.coordinator
        self.config: Federation = server.coordinator.config
        self.bucket = Bucket(self.config.bucket.url, self.config.bucket.options)
        self._participants: list[ManualParticipant] = []

    @property
    def state(self) -> State:
        return self.coordinator.state

    def participant(self, name: str, **named: Any) -> ManualParticipant:
        participant = ManualParticipant(self.server.address, RUN, identity(name), **named)
        participant.weights = ParticipantBucket(self.bucket)
        self._participants.append(participant)
        return participant

    async def join(self, *names: str) -> list[ManualParticipant]:
        participants = [self.participant(name) for name in names]
        for participant in participants:
            assert (await participant.rendezvous()).reply == wire.ACCEPT
        return participants

    async def introduced(
        self, name: str, **limits: Any
    ) -> tuple[ManualParticipant, CarriedWeights]:
        """A participant, and its line to the coordinator that carries the weights."""
        participant = self.participant(name)
        participant.weights_port = (await participant.rendezvous()).weights_port
        participant.longest_pause = 0.2
        return participant, CarriedWeights(participant, **limits)

    async def take_part(
        self, one: Participant, connect: Callable[..., Connection] = Connection, **settings: Any
    ) -> None:
        """With the SDK, until the federation has finished."""
        usual = {"run_id": RUN, "policy": AGREES, "longest_pause": 0.2}
        await take_part(one, Settings(address=self.server.address, **usual | settings), connect)

    def held_and_gone(self) -> tuple[asyncio.Event, asyncio.Event]:
        """Set when a heartbeat is held, and when one is given up."""
        held, gone = asyncio.Event(), asyncio.Event()
        changed = self.coordinator.changed

        async def watched(id: str, patience: float) -> bool:
            held.set()
            try:
                return await changed(id, patience)
            except asyncio.CancelledError:
                gone.set()
                raise

        self.coordinator.changed = watched
        return held, gone

    async def global_of(self, round_: int) -> Array:
        """The round's global model, when the coordinator has got there."""
        await self.coordinator.until(lambda s: s.round >= round_)
        with ModelFile(self.coordinator.store.global_path(round_)) as model:
            return model.arrays()["weights"].copy()

    async def close(self) -> None:
        for participant in self._participants:
            await participant.close()


@asynccontextmanager
async def running_federation(
    folder: Path, /, config: Federation | None = None, **rules: Any
) -> AsyncIterator[RunningFederation]:
    """A running federation; `rules` are those of `[rounds]`."""
    config = config or federation_config(folder, rules)
    async with serving(config, Watched) as server:
        made = RunningFederation(server)
        try:
            yield made
        finally:
            await made.close()


async def refusal(call: Coroutine[Any, Any, Any]) -> tuple[grpc.StatusCode, str]:
    """The status and the reason of a call that must not succeed."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    raise AssertionError(f"answered instead of refused: {answer}")


async def code_of(call: Coroutine[Any, Any, Any]) -> grpc.StatusCode:
    return (await refusal(call))[0]


def logged(folder: Path, kind: type[R]) -> list[R]:
    """What the coordinator whose state is in `folder` logged of this kind."""
    records = (entry.record for entry in read_log(folder / "events.jsonl", "coordinator"))
    return [record for record in records if isinstance(record, kind)]


def tls_security(authority: LoopbackAuthority, *, mutual: bool = False) -> SecurityConfig:
    """A coordinator with a certificate of this authority, which may want to see one as well."""
    server = authority.sign("server")
    return SecurityConfig(
        tls_certificate=str(server.cert),
        tls_key=str(server.key),
        tls_client_authority=str(authority.file) if mutual else "",
    )


def floats(values: Any) -> Array:
    return np.atleast_1d(np.asarray(values, np.float32))


def with_bucket(config: Federation, **fields: Any) -> Federation:
    bucket = msgspec.structs.replace(config.bucket, **fields)
    return msgspec.structs.replace(config, bucket=bucket)
