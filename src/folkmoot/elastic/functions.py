"""The steps of an iteration one by one, for a loop that wants to take them itself.

    rank = handle_rank_restart(store, rank=0, world=4)
    while True:
        record_iteration_for_rank(rank, progress)           # this rank is done
        while increment_global_iteration(rank) is None:     # decide, if everybody is there
            catch_up_restarting_rank(rank, seconds=1.0)     # else wait until somebody has
            get_active_ranks_for_coordination(rank)         # and see who is silent
        signal_global_iteration_ready(rank)                 # wake the others
        clear_global_iteration_ready(rank)
        if rank.trains: ...                                 # else it was left out: arrive again

`send_heartbeat` is to be called every `heartbeat_interval` all the while. `GlobalIteration` does
all of this, with a thread for the heartbeats; ranks of both kinds agree with each other.

Each function only asks the store what the rank's machine (`core/iteration`) wants to know at that
point, so none of them can decide a number twice, whatever the order in which they are called. Out
of turn, a function does nothing or raises RuntimeError. For one thread.
"""

import random
from collections.abc import Callable
from typing import Unpack, cast

from folkmoot.authority.store.kv import Store
from folkmoot.core.iteration import Heartbeats, Phase, Record, apply, create, keys, machine
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.record import read_heartbeat
from folkmoot.elastic.errors import error_of
from folkmoot.elastic.heartbeat import now_ms, show_number
from folkmoot.elastic.requests import ASK, PATIENCE, Values, ask_patiently
from folkmoot.elastic.settings import RuleOptions, rules_from


class Rank:
    """What one process knows, and the store that it asks."""

    def __init__(self, store: Store, rank: int, world: int, options: RuleOptions) -> None:
        self.store = store
        self.rules = rules_from(world, options)
        self.state = create(self.rules, rank)
        self.observer = Heartbeats(self.rules.heartbeat_timeout)
        self.request: m.Request | None = None
        self.chores: list[m.Housekeeping] = []
        self.heartbeat = b""

    @property
    def record(self) -> Record | None:
        """The newest decision that this rank knows."""
        return self.state.record

    @property
    def trains(self) -> bool:
        """Whether it takes part in the newest iteration."""
        return self.state.phase is Phase.Training

    def apply(self, event: m.AnyEvent) -> None:
        outcome = apply(self.state, event, now_ms(), random.getrandbits(32))
        self.state = outcome.state
        for effect in outcome.effects:
            if type(effect) in ASK:
                self.request = cast(m.Request, effect)
            elif isinstance(effect, m.Born):
                self.heartbeat = effect.heartbeat
            elif isinstance(effect, m.Housekeeping):
                self.chores.append(effect)
            elif isinstance(effect, m.Stopped):
                raise error_of(effect)
            elif isinstance(effect, m.Refused):
                raise RuntimeError(effect.reason)

    def run(self, done: Callable[[], bool]) -> None:
        """Ask the store what the machine wants to know, until something is so."""
        while not done() and self.request is not None:
            request, self.request = self.request, None
            self.apply(m.Answered(self.ask(request)))

    def ask(self, request: m.Request) -> Values:
        return ask_patiently(self.store, request, PATIENCE)


def handle_rank_restart(store: Store, rank: int, world: int, **rules: Unpack[RuleOptions]) -> Rank:
    """Begin as this rank, for the first time or again: take an incarnation, find where all are."""
    known = Rank(store, rank, world, rules)
    known.apply(m.Started())
    known.run(lambda: known.state.phase is Phase.Ready)
    if known.state.phase is not Phase.Ready:
        raise ValueError("takeover = 'refuse' watches the older process; use GlobalIteration")
    return known


def send_heartbeat(rank: Rank) -> None:
    """Show that this process lives; `Fenced` if a newer one has taken the rank over."""
    standing = read_heartbeat(rank.heartbeat)
    assert standing is not None
    request = machine.send_heartbeat(rank.state.rank, standing)
    (found,) = rank.ask(request)
    if found != request.desired:
        rank.apply(m.Beaten(found))
    rank.heartbeat = request.desired


def get_active_ranks_for_coordination(rank: Rank) -> set[int]:
    """Who lives: judged by heartbeats that moved between two calls, so call it again and again."""
    heartbeats = tuple(keys.heartbeat(r) for r in range(rank.rules.world))
    values = rank.ask(m.GetMany(heartbeats))
    rank.observer.look(values, now_ms())
    rank.apply(m.Silent(rank.observer.silent(now_ms())))
    return set(machine.get_active_ranks_for_coordination(rank.state, values))


def record_iteration_for_rank(rank: Rank, progress: int = 0) -> None:
    """Arrive: this rank is done with the present iteration, and with `progress` steps."""
    if rank.trains:
        rank.apply(m.Finished(progress))
    rank.run(lambda: rank.state.phase is not Phase.Ready)


def increment_global_iteration(rank: Rank) -> Record | None:
    """Decide the next iteration, if everybody is there; the decision, also if another was first."""
    if rank.state.phase is Phase.Ready:
        record_iteration_for_rank(rank, rank.state.progress)
    while isinstance(rank.request, m.Wait):  # look now instead
        rank.request = None
        rank.apply(m.Answered((None,)))
    rank.run(lambda: rank.state.phase is not Phase.Consensus or isinstance(rank.request, m.Wait))
    return None if rank.state.phase is Phase.Consensus else rank.record


def catch_up_restarting_rank(rank: Rank, seconds: float = 0.0) -> int:
    """Wait so long for a decision; the number of the newest, -1 before the first."""
    deadline = now_ms() + round(seconds * 1000)
    while isinstance(wait := rank.request, m.Wait):
        rank.request, left = None, max(deadline - now_ms(), 0)
        # Without `then`: to be told that all go on as before, for a moment only.
        ms = left if wait.then else min(left, wait.ms)
        rank.apply(m.Answered(rank.ask(m.Wait(wait.key, ms, wait.then))))
    return rank.state.iteration


def signal_global_iteration_ready(rank: Rank) -> None:
    """Wake those who wait for the newest decision; nothing, if that was done."""
    rank.run(lambda: rank.state.phase is not Phase.Advance)


def clear_global_iteration_ready(rank: Rank) -> None:
    """Show the newest number, and delete keys that nobody reads any more."""
    while rank.chores:
        chores = rank.chores.pop()
        rank.store.delete_many(chores.delete)
        show_number(rank.store, chores.iteration)
