"""A participant and a coordinator that answers anything: fields, bytes and models of its choice.

Whatever it is told, a participant ends with a sentence of its own or goes on; it asks no more often
than it must, trains no more than it is called to, and writes nothing outside the bucket its owner
agreed to. A world follows from its seed and from which answer was the how-manieth of its kind.
"""

import asyncio
import contextlib
import math
import socket
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from blake3 import blake3
from google.protobuf.descriptor import FieldDescriptor as Field

from folkmoot.federated import Policy, wire
from folkmoot.federated.participant.answers import BadAnswer
from folkmoot.federated.participant.bucket import WeightsUnavailable
from folkmoot.federated.participant.carried import CarriedWeights
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.federated.secure.messages import (
    BadMessage,
    Cohort,
    Confirmations,
    Keys,
    Shares,
    Survivors,
    decode,
    encode,
)
from folkmoot.federated.secure.participant_attempt import Distrust
from folkmoot.federated.signing import seal_answer
from folkmoot.federated.transfer import frames
from folkmoot.federated.transfer.uploads import cut
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.signing import Identity
from support.hostile import MODEL, Counts, HostileCoordinator, meet

SENTENCES = (BadAnswer, NotAgreed, RequestRefused, Distrust, BadMessage)
NUMBERS = [0, 1, 2, 3, 4, 5, 7, 24, 255, 65_535, 2**31 - 1]
TEXTS = ["", "..", "../../treasure", "/etc/passwd", "global", "a/b", "\x1b[2J", "x" * 5000]
TEXTS += ["s3://other", "http://127.0.0.1:1/1/global", "file:///etc/1/global", "coordinator"]
FLOATS = [0.0, -1.0, 1.0, 128.0, 1e-300, 1e308, math.inf, math.nan]
#: Answers that are twisted before the coordinator behaves, so that every world ends.
TWISTED = 12
DIGEST = blake3(MODEL).digest()


def value(random: Random, field: Any) -> Any:
    """Anything that the field's type allows."""
    if field.cpp_type == Field.CPPTYPE_BOOL:
        return random.random() < 0.5
    if field.cpp_type in (Field.CPPTYPE_DOUBLE, Field.CPPTYPE_FLOAT):
        return random.choice(FLOATS)
    if field.type == Field.TYPE_STRING:
        return random.choice(TEXTS)
    if field.type == Field.TYPE_BYTES:
        return random.randbytes(random.choice([0, 1, 16, 32, 64, 100_000]))
    number = random.choice(NUMBERS)
    signed = field.cpp_type in (Field.CPPTYPE_INT32, Field.CPPTYPE_INT64)
    return -number if signed and random.random() < 0.3 else number


def twist_message(random: Random, message: Any, share: float) -> None:
    """Set a share of the fields of a message, and of those inside it, to anything."""
    for field in message.DESCRIPTOR.fields:
        if field.name == "seal" or random.random() > share:
            continue
        if field.cpp_type == Field.CPPTYPE_MESSAGE:
            inner = getattr(message, field.name)
            if hasattr(inner, "SetInParent"):
                inner.SetInParent()
                twist_message(random, inner, 0.5)
        elif isinstance(getattr(message, field.name), int | float | str | bytes):
            setattr(message, field.name, value(random, field))


def twister(seed: int, hostile: HostileCoordinator) -> Any:
    target = Random(seed).choice([name for name in wire.METHODS if name != "Status"])

    def twist(method: str, request: Any, answer: Any) -> None:
        random = Random(f"{seed} {method} {hostile.asked[method]}")
        if sum(hostile.asked.values()) > TWISTED:
            hostile.ended.set()
        elif method == target or random.random() < 0.1:
            twist_message(random, answer, random.choice([0.1, 0.5]))

    return twist


def published(seed: int) -> bytes:
    """A model, or something like one: what a coordinator announces it also has."""
    random, body = Random(seed), bytearray(MODEL)
    for _ in range(random.choice([0, 0, 1, 20])):
        body[random.randrange(len(body))] = random.randrange(256)
    return bytes(body[: random.choice([len(body)] * 4 + [0, 7, 40])])


def below(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class Masked(HostileCoordinator):
    """Asks for masks, and goes through the steps with whatever bytes."""

    async def StartTrainingRound(self, request: Any) -> Any:
        task = await super().StartTrainingRound(request)
        rules = task.fixed_point
        rules.limit, rules.fraction_bits, rules.max_samples = 128.0, 24, 1000
        return task

    async def SecureStep(self, request: Any) -> Any:
        random = Random(f"{request.step} {self.asked['SecureStep']} {self.seed}")
        own = {}
        if request.step == 0 and request.payload:
            own = {request.proof.public_key.hex(): decode(request.payload, Keys)}
        told = [Cohort(random.randrange(5), own), Shares({}), Survivors([]), Confirmations({})]
        payload = random.choice([encode(random.choice(told)), random.randbytes(50), b""])
        return wire.SecureStepResponse(step=request.step + 1, attempt=1, payload=payload)


async def world(seed: int, folder: Path) -> str:
    """What became of the participant."""
    bucket = folder / "deep" / "bucket"
    hostile, one = (Masked if seed % 3 == 0 else HostileCoordinator)(bucket), Counts()
    hostile.seed, said = seed, "it went on"
    hostile.publish(published(seed))
    hostile.twist = twister(seed, hostile)
    try:
        await meet(hostile, Policy(buckets=(str(bucket),), most_bytes=10_000), one)
    except SENTENCES as error:
        said = str(error)
    if hostile.failure is not None:
        raise hostile.failure
    assert one.trained <= TWISTED
    assert sum(hostile.asked.values()) < 200
    return said


def prepared(folder: Path) -> Path:
    folder.mkdir()
    (folder / "treasure").write_text("mine")
    return folder


async def play(seeds: range, folder: Path) -> set[str]:
    endings = set()
    for seed in seeds:
        here = prepared(folder / str(seed))
        said = await world(seed, here)
        assert said.isprintable(), seed
        outside = {k: v for k, v in below(here).items() if not k.startswith("deep/bucket/")}
        assert outside == {"treasure": b"mine"}, seed
        endings.add(said)
    return endings


async def test_whatever_a_coordinator_answers_a_participant_ends_or_goes_on(tmp_path: Path) -> None:
    endings = await play(range(60), tmp_path)
    # The worlds are as different as they should be.
    assert "it went on" in endings
    assert len(endings) > 8


@pytest.mark.faults
async def test_a_thousand_worlds_more(tmp_path: Path) -> None:
    await play(range(1000, 2000), tmp_path)


class HostileLine:
    """Carries weights, and says and sends on its lines what it likes, sealed with its own key."""

    def __init__(self, seed: int) -> None:
        self._random, self._left = Random(seed), TWISTED
        self._identity = Identity.random()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        cut(self._listener)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                line.settimeout(60.0)
                with line, contextlib.suppress(OSError):
                    while True:
                        self._answer(line, frames.read_frame(line, wire.TransferRequest))

    def _twists(self, chance: float = 0.4) -> bool:
        self._left -= 1
        twists = self._left > 0 and self._random.random() < chance
        self._has_lied |= twists
        return twists

    def _answer(self, line: socket.socket, request: Any) -> None:
        kind, body = request.WhichOneof("what"), b""
        answer, self._has_lied = wire.TransferAnswer(), False
        if kind in ("call", "end"):
            task = wire.StartTrainingRoundResponse(round=1, global_digest=DIGEST)
            told = {"state": wire.STATE["ROUND"], "round": 1, "expected": True, "task": task}
            heard = wire.HeartbeatResponse(**told)
            if self._twists():
                twist_message(self._random, heard, 0.5)
            if kind == "end":
                counted = wire.EndTrainingRoundResponse(news=heard)
                seal_answer(self._identity, "EndTrainingRound", request.end, counted)
                answer.end.CopyFrom(counted)
            else:
                answer.call.CopyFrom(seal_answer(self._identity, "Heartbeat", request.call, heard))
        if kind in ("call", "end", "fetch"):
            body = MODEL[request.fetch.offset :]
            answer.size, answer.offset = len(MODEL), request.fetch.offset
        if kind == "store":
            if not request.store.ahead:
                line.sendall(frames.encode_frame(self._twisted(wire.TransferAnswer())))
                if self._has_lied:
                    raise ConnectionAbortedError
            frames.fill(line, memoryview(bytearray(request.store.size)))
        line.sendall(self._damaged(frames.encode_frame(self._twisted(answer)) + body))
        if self._has_lied:  # or both would wait for what the other does not send
            raise ConnectionAbortedError

    def _twisted(self, answer: Any) -> Any:
        if self._twists():
            for field in ("code", "reason", "size", "offset"):
                if self._random.random() < 0.5:
                    kind = answer.DESCRIPTOR.fields_by_name[field]
                    setattr(answer, field, value(self._random, kind))
        return answer

    def _damaged(self, sent: bytes) -> bytes:
        """What was to be sent; or a part of it, with bytes changed."""
        if not self._twists(0.2):
            return sent
        damaged = bytearray(sent)
        if self._random.random() < 0.5:
            del damaged[self._random.randrange(len(sent)) :]
        for _ in range(min(len(damaged), 3)):
            # Mostly near the end, where a body is.
            back = self._random.choice([16, 64, len(damaged)])
            damaged[-self._random.randrange(1, min(back, len(damaged)) + 1)] ^= 1
        return bytes(damaged) + self._random.randbytes(self._random.choice([0, 5, 40_000]))


def over_a_line(connection: Connection, port: int) -> str:
    """A call, its model, an update, the model of the next call: what became of them."""
    connection.weights_port, connection.longest_pause = port, 0.01
    carried = CarriedWeights(connection, max_object=10_000)
    try:
        carried.call(wire.HeartbeatRequest(want_task=True), 10.0)
        model = carried.read_global(1, DIGEST)
        assert b"".join(array.tobytes() for array in model.values()) == bytes(16)
        end = wire.EndTrainingRoundRequest(round=1, number_samples=1, wait_ms=1000)
        delivered = carried.deliver(model, end) is not None
        model = carried.read_global(1, DIGEST)
        assert b"".join(array.tobytes() for array in model.values()) == bytes(16)
        return f"delivered: {delivered}"
    except (*SENTENCES, WeightsUnavailable) as error:
        return str(error)
    finally:
        carried.close()


@pytest.mark.parametrize("start", range(0, 120, 40))
async def test_whatever_comes_over_a_line_is_the_model_announced_or_refused(start: int) -> None:
    endings = set()
    for seed in range(start, start + 40):
        hostile = HostileLine(seed)
        connection = Connection("127.0.0.1:1", "run", Identity.random())
        try:
            endings.add(await asyncio.to_thread(over_a_line, connection, hostile.port))
        finally:
            hostile.close()
            await connection.close()
    assert "delivered: True" in endings
    assert len(endings) > 3, endings
