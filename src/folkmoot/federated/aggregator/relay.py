"""An aggregator's part in the federation above: a round is what those below make of its model."""

import asyncio
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from folkmoot.core.federation import participant as machine
from folkmoot.core.federation.machine import MAX_SAMPLES
from folkmoot.core.federation.state import UpperRound
from folkmoot.federated.aggregator.region import Region
from folkmoot.federated.coordinator.sums import Summed
from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant import events
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.participant import RoundResult, encode_figures
from folkmoot.federated.participant.participation import Participation, Settings
from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.host.event_log import EventLog


class Relay(Participation):
    def __init__(self, region: Region, settings: Settings, line: Connection, log: EventLog) -> None:
        super().__init__(settings, line, log)
        self._region = region

    def _is_vain(self, heard: machine.Heard) -> bool:
        """A round that they closed without us above is not worth its end below."""
        return super()._is_vain(heard) or heard.round > self._state.training

    async def _train(self, round_: int) -> None:
        start = await self._start(round_)
        _check(start)
        self._bucket = bucket = self._open(start)

        def read() -> Mapping[str, Array]:
            return bucket.read_global(round_, start.global_digest, start.global_stamp)

        told = (start.epochs, start.epoch_base, start.evaluate, start.config)
        await self._region.take_up(UpperRound(round_, "", *told), read)
        made, found = await self._region.sum_of(round_)
        if made.samples > MAX_SAMPLES:
            raise NotAgreed(
                f"this region counts {made.samples} samples, and {MAX_SAMPLES} can be told: count "
                "in thousands, here and in every other region"
            )
        self._line.known.count_round(durable=self._policy.most_rounds > 0)
        self._log.write(events.RoundTrained(round_, made.samples, 0.0))
        digest = await asyncio.to_thread(self._write, made)
        summed = RoundResult(round_, start.global_digest, {}, {}, made.samples, "{}", found)
        metrics = encode_figures({"participants": made.participants})
        await self._end(round_, summed, metrics, digest, made.participants)

    def _write(self, made: Summed) -> bytes:
        assert self._bucket is not None
        with closing(ModelFile(made.path)) as model:
            return self._bucket.write_update(made.round, self._line.participant_id, model.arrays())


def _check(start: Any) -> None:
    """Refuse what a sum cannot be."""
    if start.initial:
        raise NotAgreed(
            "the coordinator above asks for first weights, which an aggregator does not make: set "
            "initial_weights there"
        )
    if start.HasField("fixed_point"):
        raise NotAgreed(
            "the coordinator above asks for masks, and an aggregator's sum has none: turn its "
            "[secure] off, and this region's on"
        )
