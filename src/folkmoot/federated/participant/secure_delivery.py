"""Secure aggregation in a participant: from trained weights to an update that nobody can read.

Attempts follow each other until one ends or the round is over. A participant reveals for one set of
survivors in a round: sums over two sets would differ by somebody's update.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc

from folkmoot.federated import wire
from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.model_file.memory import MemoryModel
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.participant import Trained
from folkmoot.federated.secure.coordinator_attempt import SecureStep
from folkmoot.federated.secure.fixed_point import Precision
from folkmoot.federated.secure.masked_update import masked_layout, write_masked
from folkmoot.federated.secure.masks import Mask
from folkmoot.federated.secure.messages import Cohort, Shares, Survivors, decode, encode
from folkmoot.federated.secure.participant_attempt import (
    Distrust,
    ParticipantAttempt,
    attempt_context,
)
from folkmoot.federated.wire import RequestRefused

#: Uploads named arrays and announces them to the coordinator.
Upload = Callable[[Mapping[str, Array]], Awaitable[None]]
MOST_ATTEMPTS = 1000


class SecureDelivery:
    """One participant's masked deliveries, over all rounds."""

    def __init__(self, line: Connection, peers: Mapping[str, str]) -> None:
        self._line, self._peers = line, peers
        self._round, self._revealed = -1, frozenset[str]()

    async def deliver(self, start: Any, trained: Trained, upload: Upload) -> None:
        """Until the round's sum is unmasked, or the round is over."""
        if start.round != self._round:
            self._round, self._revealed = start.round, frozenset()
        attempt = 0
        for _ in range(MOST_ATTEMPTS):
            if not attempt:
                attempt = (await self._step(start.round, 0, SecureStep.KEYS, b"")).attempt
            ended = await self._attempt(start, attempt, trained, upload)
            if ended.step == SecureStep.DONE:
                return
            attempt = ended.attempt
        raise Distrust(f"round {start.round} took more than {MOST_ATTEMPTS} attempts")

    async def _attempt(self, start: Any, attempt: int, trained: Trained, upload: Upload) -> Any:
        """One attempt: the answer that ended it."""
        own, key = self._line.participant_id, self._line.signer.identity
        context = attempt_context(self._line.run_id, start.round, attempt)
        member = ParticipantAttempt(own, key.private_key, context, secrets.token_bytes, self._known)

        async def give(step: SecureStep, payload: bytes) -> Any:
            return await self._step(start.round, attempt, step, payload)

        answer = await give(SecureStep.KEYS, encode(member.keys()))
        if answer.step != SecureStep.SHARES:
            return answer
        dealt = await asyncio.to_thread(member.shares, decode(answer.payload, Cohort))
        answer = await give(SecureStep.SHARES, encode(dealt))
        if answer.step != SecureStep.UPDATES:
            return answer
        masks = member.masks(decode(answer.payload, Shares))
        masked = await asyncio.to_thread(_masked, start.fixed_point, trained, masks)
        await upload(masked)
        answer = await give(SecureStep.UPDATES, encode(member.unopened()))
        if answer.step != SecureStep.REVEAL:
            return answer
        survivors = decode(answer.payload, Survivors)
        self._only_once(frozenset(survivors.delivered))
        return await give(SecureStep.REVEAL, encode(member.reveal(survivors)))

    async def _step(self, round_: int, attempt: int, step: SecureStep, payload: bytes) -> Any:
        """Insist on an answer that is not "wait"."""
        patience = self._line.heartbeat / 2
        while True:
            request = wire.SecureStepRequest(
                round=round_,
                attempt=attempt,
                step=step,
                payload=payload,
                wait_ms=round(patience * 1000),
            )
            answer = await self._line.insist("SecureStep", request, patience + 30.0)
            if answer.attempt != attempt or answer.step != step:
                return answer

    def _known(self, id: str, public: bytes) -> bool:
        """By our own list of peers; without one, an id that is a key must be that key."""
        if self._peers:
            return self._peers.get(id) == public.hex()
        return len(id) != 64 or id == public.hex()

    def _only_once(self, survivors: frozenset[str]) -> None:
        if self._revealed and self._revealed != survivors:
            # Not the end of our part: the same set may come back, and there are other rounds.
            raise RequestRefused(
                grpc.StatusCode.ABORTED,
                f"we revealed for another set of survivors in round {self._round}: the two sums "
                "would tell somebody's update",
            )
        self._revealed = survivors


def _masked(rules: Any, trained: Trained, masks: list[Mask]) -> Mapping[str, Array]:
    if trained.samples > rules.max_samples:
        raise ValueError(
            f"{trained.samples} samples are more than the {rules.max_samples} that secure "
            "aggregation counts; raise max_samples in [secure]"
        )
    model, base = MemoryModel(trained.arrays), MemoryModel(trained.reference)
    out = MemoryModel.empty(masked_layout(model.layout))
    precision = Precision(rules.limit, rules.fraction_bits)
    write_masked(model, base, trained.samples, masks, precision, out)
    return out.arrays
