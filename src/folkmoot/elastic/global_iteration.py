"""The global iteration: all ranks of a job go from one number to the next together.

    with GlobalIteration() as it:            # rank, world and store from the launcher
        for iteration in it:                 # the same number, and the same members, everywhere
            train(iteration, it.members)

Ranks may die, hang, restart and come late; those who are left agree on the next number and on who
takes part, through the store alone. What that means exactly is the machine's (`core/iteration`);
this is the shell around it, for one thread: it asks the store what the machine wants to know, one
question at a time, and a thread beside it moves the heartbeat.

The loop ends after `iterations`, after `break`, or with an `IterationError` whose message says what
to do. A process that is told to stop by Ctrl-C says goodbye, so that the others do not wait.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, Unpack

from msgspec.structs import replace

from folkmoot.authority.store.kv import Store
from folkmoot.authority.store.kv.open import open_store
from folkmoot.authority.store.kv.prefix import PrefixStore
from folkmoot.core.iteration import Record, apply, create, next_tick
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.machine import MOMENT, READY, TRAINING, clear_global_iteration_ready
from folkmoot.core.iteration.record import DEAD, LEFT, read_heartbeat
from folkmoot.core.iteration.state import RankState
from folkmoot.elastic import settings
from folkmoot.elastic.errors import error_of
from folkmoot.elastic.heartbeat import HeartbeatThread, now_ms
from folkmoot.elastic.ordinary import OrdinaryAdvance, prepare
from folkmoot.elastic.requests import ASK, PATIENCE, Values, ask_patiently
from folkmoot.host.event_log import EventLog

logger = logging.getLogger(__name__)
# Milliseconds after which a rank says whom it waits for.
TELL_AFTER = 5_000
SHOWN = 8  # ranks that it names, before the rest is only counted
# Milliseconds from when somebody could be silent to when the heartbeats' thread has looked.
MARGIN = 20
# That a job is done, for ranks that come later.
FINISHED = "global_iteration_finished"
LOGGED = {m.Born, m.Advanced, m.Excluded, m.Stalled, m.Stopped}


class GlobalIteration:
    """One rank's part in the job called `job`."""

    def __init__(
        self,
        store: str | Store | None = None,
        rank: int | None = None,
        world: int | None = None,
        job: str | None = None,
        *,
        iterations: int | None = None,
        progress: int = 0,
        patience: float = PATIENCE,
        log: Path | None = None,
        **rules: Unpack[settings.RuleOptions],
    ) -> None:
        """What is not given comes from the environment (`elastic/settings`).

        The loop ends before iteration number `iterations`. `progress` is how many steps are in the
        training state that this process begins with. `rules` are names of `Rules`.
        """
        self.rank = settings.number_from(settings.RANK, rank, "rank")
        self.world = settings.number_from(settings.WORLD, world, "world")
        self.job = job or settings.job_from_environment()
        self.rules = settings.rules_from(self.world, rules)
        self.progress = progress  # reported when this rank arrives; set it after each step
        self.given_store = store or settings.store_from_environment()
        self._iterations, self._patience = iterations, patience
        self._state = create(self.rules, self.rank)
        path = log or settings.log_from_environment(self.rank)
        self._log, self._logs = EventLog(path), path is not None
        self._request: m.Request | None = None
        self._stalled: tuple[m.Stalled, int] | None = None  # and since when; None once told
        self._finished = False
        self._member = False  # whether it took part in the iteration before
        self._left_out = True  # whether others may have finished without this rank
        self._heartbeat: HeartbeatThread | None = None
        self._ordinary: OrdinaryAdvance | None = None

    def __enter__(self) -> Self:
        """Take the rank: when this returns, the process has an incarnation and a heartbeat."""
        given = self.given_store
        self._opened = open_store(given) if isinstance(given, str) else given.clone()
        self.store: Store = PrefixStore(self._opened, self.job)
        try:
            self._apply(m.Started())
            while self._heartbeat is None:
                self._step()
        except BaseException:
            self._leave(DEAD)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        orderly = kind is None or not issubclass(kind, Exception)
        self._leave(LEFT if orderly else DEAD)

    def __iter__(self) -> Iterator[int]:
        while self.advance():
            yield self.iteration

    @property
    def record(self) -> Record:
        """The decision that this rank takes part in."""
        if self._state.record is None:
            raise RuntimeError("there is no iteration yet: `for iteration in it` makes the first")
        return self._state.record

    @property
    def iteration(self) -> int:
        return self.record.iteration

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that take part in this iteration, in order."""
        return self.record.ranks

    @property
    def incarnation(self) -> int:
        """How often this rank was started."""
        return self._state.incarnation

    @property
    def finished(self) -> bool:
        """Whether the job is done."""
        return self._finished

    def lost(self) -> tuple[int, ...]:
        """Members of this iteration that have died or are silent, as far as is known now."""
        assert self._heartbeat is not None
        return self._heartbeat.lost(self.record.members)

    def on_look(self, look: Callable[[], None]) -> None:
        """Have `look` called, in the heartbeats' thread, each time it has looked at the others."""
        assert self._heartbeat is not None
        self._heartbeat.after_look = look

    def ask(self, request: m.Request) -> Values:
        """Something of the store that is beside the iteration; waits while the store is away."""
        return ask_patiently(self.store, request, self._patience)

    def advance(self) -> bool:
        """Be done with the present iteration and go to the next; False when the job is done."""
        now, ordinary, heartbeat = now_ms(), self._ordinary, self._heartbeat
        if ordinary is None or heartbeat is None:
            return self._advance_by_steps(now)
        soon = heartbeat.silence_at - now
        if 0 < soon < MOMENT:
            return self._advance_by_steps(now)
        after = ordinary.advance(self._state, self.progress, now, heartbeat.events)
        if not isinstance(after, RankState):
            return self._advance_by_steps(now, after, soon)
        self._state = after
        if ordinary.won:
            heartbeat.do_later(clear_global_iteration_ready(after.target))
        if self._logs and after.record is not None:
            self._log.write(m.Advanced(after.record, ordinary.won))
        return True

    def _advance_by_steps(
        self, now: int, answered: tuple[Values, ...] = (), soon: int | None = None
    ) -> bool:
        """As the machine says. Some of it may be answered, and the request behind it be sent."""
        before = self._state.record
        phase = self._state.phase
        # In Ready a checkpoint may have been loaded since the start.
        if phase is READY or (phase is TRAINING and not self._is_over()):
            self._apply(m.Finished(self.progress), now)
        for values in answered:
            self._take(values)
        while self._state.phase is not TRAINING and not self._finished:
            if self._state.phase is not READY or not self._is_over():
                self._step(soon)
                soon = None
        self._tell_loss(before)
        self._ordinary = None
        if not self._finished and not self._left_out:
            self._ordinary = prepare(self._opened, self.job, self._state, self._iterations)
        return not self._finished

    def _tell_loss(self, before: Record | None) -> None:
        after = self._state.record
        if before and after and after.progress < before.progress:
            logger.warning(
                "rank %d: all ranks that had %d steps are gone, and training goes on from step %d:"
                " save checkpoints, and load the newest before the first iteration",
                *(self.rank, before.progress, after.progress),
            )

    def finish(self) -> None:
        """The job is done; ranks that come later, or were left out, have nothing to do any more."""
        self._finished, self._ordinary = True, None
        self.ask(m.CompareSet(FINISHED, b"", b"%d" % self.progress))

    def _is_over(self) -> bool:
        """Whether no iteration comes after the newest."""
        if self._iterations is not None and self._state.iteration + 1 >= self._iterations:
            self._finished = True
        if self._left_out and not self._finished:
            self._left_out = False
            self._finished = self.ask(m.GetMany((FINISHED,))) != (None,)
        return self._finished

    def _step(self, soon: int | None = None) -> None:
        """Carry out the open request, and take what the heartbeats tell."""
        if self._request is None:
            self._tick()
            return
        values = self.ask(self._shortened(self._request, soon))
        heartbeat = self._heartbeat
        while heartbeat is not None and heartbeat.events:
            self._apply(heartbeat.events.popleft())
        self._take(values)
        self._tell_stall()

    def _take(self, values: Values) -> None:
        self._request = None
        self._apply(m.Answered(values))

    def _shortened(self, request: m.Request, soon: int | None) -> m.Request:
        """Wait no longer than until somebody could turn out to be silent."""
        if not isinstance(request, (m.Wait, m.Arrive)) or self._heartbeat is None:
            return request
        if soon is None:
            soon = self._heartbeat.until_silence()  # it is past while the thread cannot look
        if soon <= 0 or request.ms <= soon + MARGIN:
            return request
        return replace(request, ms=soon + MARGIN)

    def _tick(self) -> None:
        due = next_tick(self._state, now_ms())
        assert due is not None, "a rank that asks nothing watches the process before it"
        time.sleep(max(0, due - now_ms()) / 1000)
        self._apply(m.Tick())

    def _apply(self, event: m.AnyEvent, now: int | None = None) -> None:
        at = now_ms() if now is None else now
        outcome = apply(self._state, event, at, random.getrandbits(32))
        self._state = outcome.state
        for effect in outcome.effects:
            if act := _ACTS.get(type(effect)):
                if type(effect) in LOGGED:
                    self._log.write(effect)
                act(self, effect)

    def _ask_next(self, request: m.Request) -> None:
        self._request = request

    def _born(self, effect: m.Born) -> None:
        standing = read_heartbeat(effect.heartbeat)
        assert standing is not None
        store = self.store.clone()
        self._heartbeat = HeartbeatThread(store, self.rules, self.rank, standing)
        self._heartbeat.start()

    def _advanced(self, effect: m.Advanced) -> None:
        self._stalled, self._member = None, True

    def _excluded(self, effect: m.Excluded) -> None:
        self._left_out = True
        if not self._member:
            return
        self._member = False
        logger.warning(
            "rank %d: the others went on to iteration %d without this rank: its heartbeat did not"
            " move for %d ms, or its process before had just died; it joins them again",
            *(self.rank, effect.record.iteration, self.rules.heartbeat_timeout),
        )

    def _stall(self, effect: m.Stalled) -> None:
        self._stalled = (effect, now_ms())

    def _tell_stall(self) -> None:
        if self._stalled is None or now_ms() - self._stalled[1] < TELL_AFTER:
            return
        stalled, self._stalled = self._stalled[0], None
        logger.warning(
            "rank %d waits to begin iteration %d for %s: %s",
            *(self.rank, stalled.iteration, _ranks(stalled.missing), stalled.why),
        )

    def _keep_house(self, effect: m.Housekeeping) -> None:
        assert self._heartbeat is not None
        self._heartbeat.do_later(effect)

    def _stopped(self, effect: m.Stopped) -> None:
        if effect.code != m.Reason.Left:
            raise error_of(effect)

    def _refused(self, effect: m.Refused) -> None:
        raise RuntimeError(effect.reason)

    def _leave(self, how: str) -> None:
        self._apply(m.Leave())
        if self._heartbeat is not None:
            self._heartbeat.stop(how)
        self.store.close()
        self._log.close()


_ACTS: dict[type, Callable[[GlobalIteration, Any], None]] = {
    **dict.fromkeys(ASK, GlobalIteration._ask_next),
    m.Born: GlobalIteration._born,
    m.Advanced: GlobalIteration._advanced,
    m.Excluded: GlobalIteration._excluded,
    m.Stalled: GlobalIteration._stall,
    m.Housekeeping: GlobalIteration._keep_house,
    m.Stopped: GlobalIteration._stopped,
    m.Refused: GlobalIteration._refused,
}


def _ranks(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:SHOWN]))
    more = f" and {len(ranks) - SHOWN} more" if len(ranks) > SHOWN else ""
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}{more}"
