"""Secure aggregation inside the coordinator: which attempt is on, who is in it, when it fails.

Participants train first and exchange keys afterwards, so whoever drops out during training is
replaced as in any round. The cohort closes when as many have sent keys as the round needs, or when
nobody else is awaited; who comes later is excused until the next round. An attempt that fails gives
up the round's updates: its members are asked again, and have only to mask and upload again. The
masks of a sum are kept until its model is written: whoever revealed for it will not for another.

Runs on the coordinator's event loop.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot.core.federation import Phase, State
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Delivery
from folkmoot.federated.coordinator import events
from folkmoot.federated.coordinator.saved_masks import load_masks, save_masks
from folkmoot.federated.secure.config import SecureConfig
from folkmoot.federated.secure.coordinator_attempt import CoordinatorAttempt, SecureStep, TooFew
from folkmoot.federated.secure.masks import Mask
from folkmoot.federated.secure.messages import (
    BadMessage,
    Confirmation,
    Keys,
    Reveal,
    Shares,
    Unopened,
    decode,
    encode,
)
from folkmoot.federated.secure.participant_attempt import Distrust, attempt_context
from folkmoot.host.clock import wall_clock
from folkmoot.host.event_log import Record


class NextStep(NamedTuple):
    """The step to take next, in which attempt, and what is needed for it."""

    step: int
    attempt: int
    payload: bytes = b""


class SecureRounds:
    def __init__(
        self,
        run_id: str,
        rules: SecureConfig,
        state: Callable[[], State],
        submit: Callable[[Any], Any],
        log: Callable[[Record], None],
        folder: Path,
    ) -> None:
        self.rules, self._run_id, self._kept = rules, run_id, folder / "unmasking"
        self._state, self._submit, self._log = state, submit, log
        self._attempt: CoordinatorAttempt | None = None
        self._round, self._number = -1, 0
        #: The attempt whose last keys are waited for with a limit.
        self._hurried: CoordinatorAttempt | None = None
        self._changed = asyncio.Event()

    def applies(self) -> bool:
        """Initial weights know nothing of anybody's data and travel as they are."""
        return self.rules.enabled and not self._state().initial_round

    # What participants ask.

    async def step(self, id: str, request: Any, patience: float) -> NextStep:
        """One call of `SecureStep`. Raises `BadMessage` or `Distrust` for what is refused."""
        state = self._state()
        if request.round < state.round:
            return NextStep(SecureStep.DONE, request.attempt)
        attempt = self._current()
        if attempt is None:
            await self._until(lambda: self._attempt is not None, patience)
            return NextStep(SecureStep.KEYS, self._number)
        if request.attempt != self._number:
            return NextStep(SecureStep.KEYS, self._number)
        self._take(attempt, id, request)
        self._settle()
        asked = SecureStep(min(request.step, SecureStep.REVEAL))
        await self._until(lambda: self._attempt is not attempt or attempt.step > asked, patience)
        if self._attempt is not attempt:
            over = self._state().round > request.round
            return NextStep(SecureStep.DONE if over else SecureStep.KEYS, self._number)
        return self._answer(attempt, id, asked)

    def _take(self, attempt: CoordinatorAttempt, id: str, request: Any) -> None:
        with self._failing():
            if request.step == SecureStep.KEYS:
                self._take_keys(attempt, id, request)
            elif request.step == SecureStep.SHARES:
                attempt.shares(id, decode(request.payload, Shares))
            elif request.step == SecureStep.UPDATES:
                attempt.unopened(id, decode(request.payload, Unopened))
            elif request.step == SecureStep.CONFIRM:
                attempt.confirm(id, decode(request.payload, Confirmation))
            elif request.step == SecureStep.REVEAL:
                attempt.reveal(id, decode(request.payload, Reveal))

    def _take_keys(self, attempt: CoordinatorAttempt, id: str, request: Any) -> None:
        keys = decode(request.payload, Keys)
        if keys.identity != request.proof.public_key:
            raise Distrust("the keys name another identity than the one that signed the request")
        attempt.keys(id, keys)

    def _answer(self, attempt: CoordinatorAttempt, id: str, asked: SecureStep) -> NextStep:
        if attempt.step <= asked:
            return NextStep(asked, self._number)
        if asked == SecureStep.REVEAL:
            return NextStep(SecureStep.DONE, self._number)
        payload = (
            lambda: encode(attempt.cohort()),
            lambda: encode(attempt.shares_for(id)),
            lambda: encode(attempt.survivors()),
            lambda: encode(attempt.confirmations()),
        )[asked]()
        return NextStep(asked + 1, self._number, payload)

    def admits(self, id: str) -> str:
        """Why `id` may not deliver now, or nothing."""
        attempt = self._attempt
        if attempt is None or attempt.step != SecureStep.UPDATES or id not in attempt.members:
            return f"{id} has no masks in this attempt: exchange keys and shares first"
        return ""

    # What happens in the coordinator.

    def observe(self, effects: Iterable[m.Effect]) -> None:
        """The machine moved: people left, the round began again, or it is over."""
        state, attempt = self._state(), self._attempt
        if attempt is None:
            return
        moved = any(isinstance(effect, m.StateChanged) for effect in effects)
        if state.round != self._round:
            self._attempt = None
            self._notify()
        elif moved:
            self._fail(TooFew("too few participants were left for a quorum"))
        else:
            with self._failing():
                attempt.without(attempt.waiting_for - set(state.members))
            self._settle()

    async def unmask(self, deliveries: Sequence[Delivery]) -> list[Mask] | None:
        """What the sum of these updates needs to be unmasked; None when the attempt failed."""
        if kept := await asyncio.to_thread(load_masks, self._kept, deliveries):
            return kept
        ids, attempt = [delivery.id for delivery in deliveries], self._attempt
        if attempt is None or attempt.step != SecureStep.UPDATES:
            self._fail(TooFew("the coordinator started again"))
            return None
        masks = None
        with self._failing():
            attempt.delivered(ids)
            for step in (SecureStep.CONFIRM, SecureStep.REVEAL, SecureStep.DONE):
                self._patience(attempt)
                self._notify()
                await self._reached(attempt, step)
                if self._attempt is not attempt:
                    return None
            masks = attempt.residue()
        if masks is None:
            return None
        await asyncio.to_thread(save_masks, self._kept, deliveries, masks)
        dropped = len(attempt.members) - len(ids)
        self._log(events.Unmasked(self._round, self._number, len(ids), dropped))
        return masks

    # Inside.

    def _current(self) -> CoordinatorAttempt | None:
        state = self._state()
        if self._attempt is None and state.phase is Phase.ROUND and not state.closing:
            self._round = state.round
            # Never used before: a participant of an earlier attempt must not mistake this for it.
            self._number = secrets.randbits(63) | 1
            context = attempt_context(self._run_id, state.round, self._number)
            self._attempt = CoordinatorAttempt(
                context, self.rules.threshold, self.rules.least_cohort
            )
            self._give_up(state)
            self._notify()
        return self._attempt

    def _settle(self) -> None:
        """Close the cohort when it is complete, and excuse who is not in it."""
        state, attempt = self._state(), self._attempt
        if attempt is None or state.phase is not Phase.ROUND:
            return
        if attempt.step == SecureStep.KEYS and self._complete(state, attempt):
            try:
                attempt.close_keys()
                self._patience(attempt)
            except TooFew as error:
                self._fail(error)
                return
        if attempt.step == SecureStep.KEYS:
            self._hurry(state, attempt)
        self._notify()
        if attempt.step > SecureStep.KEYS and not state.closing:
            late = tuple(id for id in state.outstanding() if id not in attempt.members)
            if late:
                loop = asyncio.get_running_loop()
                loop.call_soon(self._submit, m.Excused(late, state.round))

    def _complete(self, state: State, attempt: CoordinatorAttempt) -> bool:
        sent = attempt.members
        if len(sent) >= state.goal:
            return True
        awaited = [id for id in state.outstanding() if id not in sent]
        enough = state.rules.enough(state.goal, state.given_up)
        return len(sent) >= max(enough, self.rules.least_cohort) and (state.overdue or not awaited)

    def _hurry(self, state: State, attempt: CoordinatorAttempt) -> None:
        """With half of the keys there, the others get as long as for their updates."""
        if attempt is self._hurried or 2 * len(attempt.members) < state.goal:
            return
        patience = state.rules.patience_ms(max(0, wall_clock() - state.began))
        if not patience:
            return
        self._hurried, round_ = attempt, state.round

        def late() -> None:
            now = self._state()
            waits = self._attempt is attempt and attempt.step == SecureStep.KEYS
            missing = tuple(id for id in now.outstanding() if id not in attempt.members)
            if waits and missing:
                self._submit(m.Late(missing, round_))

        asyncio.get_running_loop().call_later(patience / 1000, late)

    def _patience(self, attempt: CoordinatorAttempt) -> None:
        """Wait for the slowest of this step only so long."""
        step, loop = attempt.step, asyncio.get_running_loop()

        def late() -> None:
            if self._attempt is attempt and attempt.step == step:
                with self._failing():
                    attempt.without(attempt.waiting_for)
                self._settle()

        loop.call_later(self.rules.step_timeout, late)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """With too few left, the attempt fails, and what follows goes on without it."""
        try:
            yield
        except TooFew as error:
            self._fail(error)

    def _fail(self, error: TooFew) -> None:
        state, loop = self._state(), asyncio.get_running_loop()
        self._log(events.AttemptFailed(state.round, self._number, str(error)))
        self._attempt = None
        self._notify()
        self._give_up(state)
        for dealer in error.dealers:  # after its update was given up
            loop.call_soon(self._submit, m.Quarantined(dealer, state.round, str(error)))

    def _give_up(self, state: State) -> None:
        """Updates with masks that nobody can remove any more are asked for again."""
        keys = tuple(state.deliveries)
        if keys or state.excused:
            asyncio.get_running_loop().call_soon(self._submit, m.Lost(keys))

    async def _reached(self, attempt: CoordinatorAttempt, step: SecureStep) -> None:
        await self._until(lambda: self._attempt is not attempt or attempt.step >= step, None)

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, done: Callable[[], bool], patience: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while not done():
                    await self._changed.wait()


def refusal(error: Exception) -> str:
    """What a participant is told about a message that was not taken."""
    kind = "cannot be read" if isinstance(error, BadMessage) else "is not to be trusted"
    return f"the message {kind}: {error}"
