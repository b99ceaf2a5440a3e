"""Secure aggregation in a participant: from trained weights to an update that nobody can read.

Attempts follow each other until one ends or the round is over. A participant confirms one set of
survivors in a round, over all its lives, and never of a round before that: sums over two sets would
differ by somebody's update.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from typing import Any, NamedTuple

import grpc

from folkmoot.federated import wire
from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.model_file.memory import MemoryModel
from folkmoot.federated.participant.answers import require
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.participant import RoundResult
from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.federated.secure.coordinator_attempt import SecureStep
from folkmoot.federated.secure.distributed_noise import PrivateSum, write_noisy
from folkmoot.federated.secure.fixed_point import Precision
from folkmoot.federated.secure.masked_update import masked_layout, write_masked
from folkmoot.federated.secure.masks import Mask
from folkmoot.federated.secure.messages import (
    MAX_COHORT,
    Cohort,
    Confirmations,
    Shares,
    Survivors,
    decode,
    encode,
)
from folkmoot.federated.secure.participant_attempt import (
    Demands,
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

    def __init__(self, line: Connection, peers: Mapping[str, str], demands: Demands) -> None:
        self._line, self._peers, self._demands = line, peers, demands

    async def deliver(self, start: Any, trained: RoundResult, upload: Upload) -> None:
        """Until the round's sum is unmasked, or the round is over."""
        attempt = 0
        for _ in range(MOST_ATTEMPTS):
            if not attempt:
                attempt = (await self._step(start.round, 0, SecureStep.KEYS, b"")).attempt
            ended = await self._attempt(start, attempt, trained, upload)
            if ended.step == SecureStep.DONE:
                return
            attempt = ended.attempt
        raise Distrust(f"round {start.round} took more than {MOST_ATTEMPTS} attempts")

    async def _attempt(self, start: Any, attempt: int, trained: RoundResult, upload: Upload) -> Any:
        """One attempt: the answer that ended it."""
        own, key = self._line.participant_id, self._line.signer.identity
        context = attempt_context(self._line.run_id, start.round, attempt)
        member = ParticipantAttempt(
            own, key.private_key, context, secrets.token_bytes, self._known, self._demands
        )

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
        made = Masking(masks, member.honest, key.private)
        try:
            masked = await asyncio.to_thread(_masked, start.fixed_point, trained, made)
        except ValueError as error:
            raise NotAgreed(f"our update cannot be masked as it is asked for: {error}") from None
        await upload(masked)
        answer = await give(SecureStep.UPDATES, encode(member.unopened()))
        if answer.step != SecureStep.CONFIRM:
            return answer
        survivors = decode(answer.payload, Survivors)
        confirmation = member.confirm(survivors)
        await asyncio.to_thread(self._only_once, start.round, survivors)
        answer = await give(SecureStep.CONFIRM, encode(confirmation))
        if answer.step != SecureStep.REVEAL:
            return answer
        revealed = member.reveal(decode(answer.payload, Confirmations))
        return await give(SecureStep.REVEAL, encode(revealed))

    async def _step(self, round_: int, attempt: int, step: SecureStep, payload: bytes) -> Any:
        """Insist on an answer that is not "wait"."""
        patience, loop = self._line.heartbeat / 2, asyncio.get_running_loop()
        while True:
            request = wire.SecureStepRequest(
                round=round_,
                attempt=attempt,
                step=step,
                payload=payload,
                wait_ms=round(patience * 1000),
            )
            asked = loop.time()
            answer = await self._line.insist("SecureStep", request, patience + 30.0)
            require(answer.step <= SecureStep.DONE, f"there is no step {answer.step}")
            if answer.attempt != attempt or answer.step != step:
                return answer
            if loop.time() - asked < patience / 2:
                await asyncio.sleep(patience / 2)  # it was not held: we do not ask in a circle

    def _known(self, id: str, public: bytes) -> bool:
        """By our own list of peers; without one, an id that is a key must be that key."""
        if self._peers:
            return self._peers.get(id) == public.hex()
        return len(id) != 64 or id == public.hex()

    def _only_once(self, round_: int, survivors: Survivors) -> None:
        """On disk before anybody hears that we confirmed them."""
        known = self._line.known
        names = sha256(encode(sorted(survivors.delivered))).hexdigest()
        before = known.run.confirmed_round, known.run.confirmed
        if round_ < before[0] or (round_ == before[0] and names != before[1]):
            # Not the end of our part: the same set may come back, and there are other rounds.
            raise RequestRefused(
                grpc.StatusCode.ABORTED,
                f"we confirmed other survivors, in round {before[0]}: the two sums would tell "
                "somebody's update",
            )
        if before != (round_, names):
            known.change(confirmed_round=round_, confirmed=names)


class Masking(NamedTuple):
    """What an upload is hidden with."""

    masks: list[Mask]
    #: How many are sure to add noise as we do.
    honest: int
    secret: bytes


def _masked(rules: Any, trained: RoundResult, made: Masking) -> Mapping[str, Array]:
    model, base = MemoryModel(trained.arrays), MemoryModel(trained.reference)
    out = MemoryModel.empty(masked_layout(model.layout))
    precision = Precision(rules.limit, rules.fraction_bits)
    if rules.clip_norm:
        private = PrivateSum(rules.clip_norm, rules.noise_multiplier, precision)
        if wrong := private.wrong(made.honest, MAX_COHORT):
            raise ValueError(f"no private sum can be made: {wrong}")
        write_noisy(model, base, private, made.honest, made.secret, made.masks, out)
        return out.arrays
    if trained.samples > rules.max_samples:
        raise ValueError(
            f"{trained.samples} samples are more than the {rules.max_samples} that secure "
            "aggregation counts; raise max_samples in [secure]"
        )
    write_masked(model, base, trained.samples, made.masks, precision, out)
    return out.arrays
