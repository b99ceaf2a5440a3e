"""What all ranks of one job have in common. Times are in milliseconds."""

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

# Most ranks that sample heartbeats at full pace; with more, each samples less often.
FULL_PACE = 32


class Takeover(StrEnum):
    """What a process does when it finds that its rank is claimed already."""

    fence = "fence"  # it takes the rank; the older process learns it and stops
    refuse = "refuse"  # it watches the older one for a while, and stops if that is alive


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # Notes of so many fit into one value of a store, whatever they say.
    world: Annotated[int, Meta(ge=1, le=16_384)]
    # Fewer than this never go on. One is safe: the store decides, so halves cannot both go on.
    min_ranks: Annotated[int, Meta(ge=1)] = 1
    heartbeat_interval: Annotated[int, Meta(ge=10)] = 2_000
    # A rank whose heartbeat did not move for so long, by the clock of who looks, is silent.
    heartbeat_timeout: Annotated[int, Meta(ge=15)] = 3_000
    # How long the first iteration waits for ranks that have not come yet.
    join_timeout: Annotated[int, Meta(ge=0)] = 60_000
    # How long to wait for a rank that lives and does not arrive; 0: for ever.
    straggler_timeout: Annotated[int, Meta(ge=0)] = 0
    takeover: Takeover = Takeover.fence

    def __post_init__(self) -> None:
        if self.min_ranks > self.world:
            raise ValueError(f"min_ranks is {self.min_ranks}, and there are {self.world} ranks")
        if self.heartbeat_timeout <= self.heartbeat_interval:
            raise ValueError(
                f"heartbeat_timeout ({self.heartbeat_timeout} ms) must be longer than"
                f" heartbeat_interval ({self.heartbeat_interval} ms)"
            )

    @property
    def pace(self) -> int:
        """How often one rank looks at the others; all of them together look often enough."""
        return max(self.heartbeat_interval // 4 * max(FULL_PACE, self.world) // FULL_PACE, 1)
