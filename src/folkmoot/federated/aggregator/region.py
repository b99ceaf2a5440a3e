"""What the two halves of an aggregator tell each other: calls go down, sums go up."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from folkmoot.core.federation.evaluation import mean_evaluation
from folkmoot.core.federation.state import UpperRound
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.evaluation import MOST_SAMPLES
from folkmoot.federated.coordinator.sums import Summed
from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.participant.participant import FoundEvaluation, encode_figures
from folkmoot.host.journal import Journal


class BeganAnew(ValueError):
    """The coordinator above is not where we left it; the message says what to do."""


class RegionalSum(NamedTuple):
    """A round's sum, and what those below found of the model that they were given."""

    made: Summed
    evaluation: FoundEvaluation | None


class Region:
    def __init__(self, journal: Callable[[Path], Journal] = Journal) -> None:
        self._journal = journal
        self._sum: RegionalSum | None = None
        self._arrived = asyncio.Event()

    def coordinate(self, below: Federation) -> Coordinator:
        """The coordinator of those below, for `serving`."""
        self.coordinator = Coordinator(below, journal=self._journal, on_sum=self._take)
        return self.coordinator

    async def take_up(self, above: UpperRound, read: Callable[[], Mapping[str, Array]]) -> None:
        """Begin a round with the model that `read` gets from above, unless it is begun already."""
        known = self.coordinator.state.above
        if known is not None and known.round == above.round:
            return  # we were started again in it, or its update was asked for again
        if known is not None and known.round > above.round:
            raise BeganAnew(
                f"the coordinator above is in round {above.round}, and this region did round "
                f"{known.round} for it: it began anew. Begin anew too, with another [server] state"
            )
        await self.coordinator.take_up(above, await asyncio.to_thread(read))

    async def sum_of(self, round_: int) -> RegionalSum:
        """The sum of a round, when there are enough updates for it."""
        while self._sum is None or self._sum.made.round != round_:
            self._arrived.clear()
            await self._arrived.wait()
        return self._sum

    def _take(self, made: Summed) -> None:
        self._sum = RegionalSum(made, self._evaluation(made.round))
        self._arrived.set()

    def _evaluation(self, round_: int) -> FoundEvaluation | None:
        """The mean of what was told with the updates, as one participant's word."""
        state, reported = self.coordinator.state, self.coordinator.reported.summary(round_)
        told = [state.deliveries[key] for key in state.closing if state.deliveries[key].evaluation]
        if not told:
            return None
        found = mean_evaluation(told)
        metrics = {}
        if reported is not None:
            self.coordinator.log.write(reported)
            metrics = reported.metrics
        return FoundEvaluation(
            found.loss, min(found.samples, MOST_SAMPLES), encode_figures(metrics)
        )
