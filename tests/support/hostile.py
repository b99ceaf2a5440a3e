"""A coordinator that wants to harm: it answers what a test says, under a seal of its own."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from blake3 import blake3
from safetensors.numpy import save

from folkmoot.federated import Participant, Policy, Settings, take_part, wire
from folkmoot.federated.signing import seal_answer
from folkmoot.host.signing import Identity

MODEL = save({"weights": np.zeros(4, np.float32)})


class HostileCoordinator:
    """Calls whoever comes to round 1 and counts everything; `twist` may change any answer.

    `twist(method, request, answer)` is called before the seal, and may return another answer.
    """

    def __init__(self, bucket: Path, twist: Callable[..., Any] | None = None) -> None:
        self.identity, self.session = Identity.random(), secrets.token_bytes(16)
        self.bucket, self.twist = bucket, twist or (lambda method, request, answer: None)
        self.seed = 0
        self.round, self.asked = 1, dict.fromkeys(wire.METHODS, 0)
        self.ended = asyncio.Event()
        #: Of the twist itself.
        self.failure: BaseException | None = None
        self.sealing: Callable[..., Any] = seal_answer
        self.publish(MODEL)

    def publish(self, body: bytes) -> None:
        self.digest = blake3(body).digest()
        path = self.bucket / str(self.round) / "global"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    async def Rendezvous(self, request: Any) -> Any:
        return wire.RendezvousResponse(
            reply=wire.ACCEPT,
            participant_id=request.proof.public_key.hex(),
            session=self.session,
            heartbeat_ms=200,
            bucket=str(self.bucket),
        )

    async def Heartbeat(self, request: Any) -> Any:
        if self.ended.is_set():
            return wire.HeartbeatResponse(state=wire.STATE["FINISHED"], round=self.round)
        return wire.HeartbeatResponse(state=wire.STATE["ROUND"], round=self.round, expected=True)

    async def StartTrainingRound(self, request: Any) -> Any:
        return wire.StartTrainingRoundResponse(
            epochs=1, round=self.round, global_digest=self.digest
        )

    async def EndTrainingRound(self, request: Any) -> Any:
        self.ended.set()
        news = await self.Heartbeat(request) if request.wait_ms else None
        return wire.EndTrainingRoundResponse(news=news)

    async def SecureStep(self, request: Any) -> Any:
        return wire.SecureStepResponse(step=0, attempt=1)

    async def Status(self, request: Any) -> Any:
        return wire.StatusResponse()

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            wire.SERVICE,
            {
                name: grpc.unary_unary_rpc_method_handler(
                    self._answering(name),
                    request_deserializer=request.FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
                for name, (request, _) in wire.METHODS.items()
            },
        )

    def _answering(self, method: str) -> Any:
        async def answer(request: Any, context: Any) -> Any:
            self.asked[method] += 1
            made = await getattr(self, method)(request)
            try:
                made = self.twist(method, request, made) or made
            except BaseException as error:  # gRPC would keep it to itself
                self.failure = error
                raise
            return self.sealing(self.identity, method, request, made)

        return answer


@asynccontextmanager
async def listening(handler: grpc.GenericRpcHandler) -> AsyncIterator[str]:
    """The address of a server whose answers this handler makes."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


class Counts(Participant):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        self.trained = self.made_first = 0

    def init_weights(self) -> np.ndarray:
        self.made_first += 1
        return np.zeros(4, np.float32)

    def train_round(self, weights: Any, epochs: int, epoch_base: int) -> tuple:
        self.trained += 1
        # Names, types and shapes are the coordinator's too.
        return (weights if isinstance(weights, dict) else weights.copy()), 1, {}


async def meet(
    hostile: HostileCoordinator, policy: Policy, one: Participant | None = None, **settings: Any
) -> None:
    """One participant takes part with a hostile coordinator until either is done."""
    async with listening(hostile.handler()) as address, asyncio.timeout(60):
        given = Settings(
            address=address, run_id="test", longest_pause=0.05, policy=policy, **settings
        )
        await take_part(one or Counts(), given)
