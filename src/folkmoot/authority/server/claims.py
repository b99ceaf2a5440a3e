"""A checkpointer's claim is checked before the machine hears of it.

The check itself is given: it reads the store and says why the claim is false, or that it cannot
read. It runs beside everything else, at most `AT_ONCE` at a time, and a checkpointer has at most
`TRIES` for a model, so a liar costs the server a bounded number of reads. Whoever asks again while
its claim is being checked waits for the same check: a large model takes longer than a request may.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

from folkmoot.authority.server import events
from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import Coordinator, apply
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.checkpoints import is_wanted
from folkmoot.host.event_log import Record
from folkmoot.host.tasks import end_tasks

AT_ONCE = 2
TRIES = 3


class CannotRead(Exception):
    """The store cannot be read from here; the message says why."""


class ClaimPolicy(StrEnum):
    """What to do when the store cannot be read from the server."""

    auto = "auto"  # believe the checkpointer, who has read its work back
    always = "always"  # refuse
    never = "never"  # do not even look


Claim = m.OpportunisticCooldown
Tell = Callable[[Record], None]
# Why the claim is false, or None. The last argument says when nobody needs the answer any more.
Check = Callable[[Coordinator, Claim, Callable[[], bool]], Awaitable[str | None]]


class Claims:
    def __init__(
        self, check: Check, policy: ClaimPolicy = ClaimPolicy.auto, tell: Tell | None = None
    ):
        self._check, self._policy = check, policy
        self._tell = tell or (lambda event: None)
        self._free = asyncio.Semaphore(AT_ONCE)
        self._wanted = (-1, b"")  # epoch and model
        self._tries: dict[bytes, int] = {}
        self._under_way: dict[bytes, tuple[Claim, asyncio.Task[m.Refused | None]]] = {}

    async def submit(self, keeper: Keeper, claim: Claim) -> m.Refused | None:
        """As `Keeper.submit`, once the claim was found true."""
        state = keeper.state
        refused = apply(state, claim, keeper.now(), 0).refused
        if refused or self._policy is ClaimPolicy.never:
            return await keeper.submit(claim)  # nothing that needs reading, or nobody to read
        if (state.epoch_number, claim.model_hash) != self._wanted:
            self._wanted, self._tries = (state.epoch_number, claim.model_hash), {}
        known, task = self._under_way.get(claim.sender, (None, None))
        if task is None:
            if self._tries.get(claim.sender, 0) >= TRIES:
                return m.refusal(m.Reason.WrongModel)
            self._tries[claim.sender] = self._tries.get(claim.sender, 0) + 1
            task = asyncio.create_task(self._judge(keeper, claim))
            self._under_way[claim.sender] = (claim, task)
            task.add_done_callback(lambda _: self._under_way.pop(claim.sender))
        elif known != claim:
            return m.refusal(m.Reason.Duplicate)
        # The request may be given up; the check goes on for the next one.
        return await asyncio.shield(task)

    async def _judge(self, keeper: Keeper, claim: Claim) -> m.Refused | None:
        def over() -> bool:
            return claim.epoch != keeper.state.epoch_number or not is_wanted(keeper.state, claim)

        try:
            async with self._free:
                false = await self._check(keeper.state, claim, over)
        except CannotRead as error:
            if self._policy is ClaimPolicy.always:
                false = f"the server cannot read the store: {error}"
            else:
                self._tell(events.ClaimTrusted(claim.sender, claim.location, str(error)))
                return await keeper.submit(claim)
        if over():  # nobody needs to know: the machine says so, and it is no lie
            return await keeper.submit(claim)
        if false is not None:
            self._tell(events.ClaimRefused(claim.sender, claim.location, false))
            return m.refusal(m.Reason.WrongModel)
        self._tell(events.ClaimVerified(claim.sender, claim.location))
        return await keeper.submit(claim)

    async def close(self) -> None:
        await end_tasks(task for _, task in self._under_way.values())
