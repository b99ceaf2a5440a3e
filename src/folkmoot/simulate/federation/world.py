"""Seeded worlds of a federation: drop-outs, stragglers, latecomers, duplicates, restarts, liars,
lost updates, and those who come too late for a secure aggregation.

A world is one coordinator and some participants on a virtual clock. Its seed decides everything:
the rules, who is slow, what is lost, when the coordinator is killed (between keeping an event and
acting on it, too). After every event the invariants are checked; once the faults stop, the
federation must finish. A broken promise is a `Violation` with a transcript that replays it.
"""

import heapq
import random
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from folkmoot.core import federation
from folkmoot.core.federation import Phase, Rules, State
from folkmoot.core.federation import messages as m
from folkmoot.core.federation import participant as part
from folkmoot.core.federation.liveness import Liveness
from folkmoot.simulate.federation.invariants import broken_promises
from folkmoot.simulate.federation.transcript import Begun, entry, forgetful, head
from folkmoot.simulate.report import Report

FAULTS_END = 400_000
GIVE_UP = 4_000_000
TIMEOUT = 2_000


class Violation(AssertionError):
    """A promise that did not hold, and how to see it again."""

    def __init__(self, seed: int, promise: str, transcript: list[str]) -> None:
        tail = "\n".join(transcript[-60:])
        super().__init__(f"seed {seed}: {promise}\n{tail}")
        self.seed, self.promise, self.transcript = seed, promise, transcript


class World:
    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(seed)
        self.now, self.count = 0, 0
        self.transcript: list[str] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self.rules = _rules(self.rng)
        self.loss = self.rng.choice((0.0, 0.05, 0.3))
        self.secure = not self.rules.asynchronous and self.rng.random() < 0.5
        self.coordinator = Coordinator(self)
        honest = self.rules.min_connected + self.rng.randrange(4)
        liars = self.rng.choice((0, 0, 1, 2)) if self.rules.max_strikes else 0
        names = [f"p{i:02}" for i in range(honest + liars)]
        self.people = [Person(self, name, lies=i >= honest) for i, name in enumerate(names)]

    def run(self) -> Report:
        """Until the federation has finished; `Violation` when it does not, or breaks a promise."""
        for person in self.people:
            self.later(self.rng.randrange(20_000), person.arrive)
        self.later(self.rng.randrange(1, 40_000), self._kill_coordinator)
        while self._queue and not self._over():
            self.now, _, action = heapq.heappop(self._queue)
            if self.now > GIVE_UP:
                self.broken(
                    f"not finished {(GIVE_UP - FAULTS_END) / 1000:g} s after the last fault"
                )
            action()
        if not self._over():
            self.broken("nothing is left to happen, and the federation has not finished")
        return Report(self.seed, self.count, counts=self.counts())

    def counts(self) -> dict[str, int]:
        c = self.coordinator
        return {
            "rounds": c.state.round,
            "restarts": c.restarts,
            "departures": c.dropped,
            "bad updates": c.bad,
            "lost updates": c.lost,
            "excused": c.excused,
        }

    def later(self, delay: int, action: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self._queue, (self.now + max(delay, 1), self.count, action))

    @property
    def faulty(self) -> bool:
        return self.now < FAULTS_END

    def chance(self, probability: float) -> bool:
        """Whether a fault happens; never once they have ended."""
        return self.faulty and self.rng.random() < probability

    def broken(self, promise: str) -> None:
        raise Violation(self.seed, promise, self.transcript)

    def _over(self) -> bool:
        return self.coordinator.state.phase is Phase.FINISHED

    def _kill_coordinator(self) -> None:
        if self.faulty:
            self.coordinator.restart(self.rng.randrange(1, 30_000))
            self.later(self.rng.randrange(3_000, 60_000), self._kill_coordinator)


class Coordinator:
    """The machine with a journal that survives and effects that may be lost."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seed = world.rng.getrandbits(64)
        self.journal: list[tuple[int, m.AnyEvent]] = []
        self.begun = Begun(world.rules, world.rng.random() < 0.5, self.seed)
        world.transcript.append(head(self.begun))
        self.state = self.begun.state()
        self.liveness = Liveness(world.rules.expiry_ms)
        self.models: dict[int, str] = {}
        self.up_from, self.life = 0, 0
        self.restarts = self.dropped = self.bad = self.lost = self.excused = 0
        self._tick()

    @property
    def up(self) -> bool:
        return self.world.now >= self.up_from

    def submit(self, event: m.AnyEvent) -> tuple[m.Effect, ...]:
        before = self.state
        after, effects = federation.apply(before, event, self.world.now, self.seed)
        self.world.transcript += entry(self.world.now, event, effects)
        self._check(before, event, after, effects)
        if after is before:
            return effects
        self.journal.append((self.world.now, event))
        self.state = after
        if self.world.chance(0.01):
            self.restart(self.world.rng.randrange(1, 5_000))
            return ()
        for effect in effects:
            self._act(effect)
        return effects

    def _act(self, effect: m.Effect) -> None:
        match effect:
            case m.Joined(id):
                self.liveness.heard(id, self.world.now)
            case m.Left(id):
                self.liveness.forget([id])
                self.dropped += 1
            case m.Aggregate(round_, keys):
                self._aggregate(round_, keys)

    def _aggregate(self, round_: int, keys: tuple[str, ...]) -> None:
        parts = [
            f"{d.key} {d.digest} {d.samples}" for d in map(self.state.deliveries.get, keys) if d
        ]
        digest = sha256("\n".join([self.state.global_digest, *parts]).encode()).hexdigest()
        life = self.life

        def written() -> None:
            if life == self.life and self.up:
                self._written(round_, digest)

        self.world.later(self.world.rng.randrange(1, 3_000), written)

    def _written(self, round_: int, digest: str) -> None:
        if self.models.setdefault(round_, digest) != digest:
            self.world.broken(f"round {round_} was combined twice, with different results")
        self.submit(m.Written(round_, digest))

    def restart(self, pause: int) -> None:
        """Killed: memory is gone, the journal is not."""
        self.restarts += 1
        self.life += 1
        self.up_from = self.world.now + pause
        self.world.transcript.append(f"! {self.world.now} killed for {pause} ms")
        if promise := forgetful(self.begun, self.journal, self.state):
            self.world.broken(promise)
        self.state = federation.decode(federation.encode(self.state))
        self.liveness = Liveness(self.world.rules.expiry_ms)
        life = self.life
        self.world.later(pause, lambda: self._started() if life == self.life else None)

    def _started(self) -> None:
        for id in self.state.members:
            self.liveness.heard(id, self.world.now)
        if self.state.deliveries and self.world.chance(0.2):
            # The machine lost power, and what was not synced with it.
            self._lose(self.world.rng.choice(sorted(self.state.deliveries)))
        if self.state.closing and self.up:
            self._aggregate(self.state.round, self.state.closing)

    def _lose(self, key: str) -> None:
        self.lost += 1
        self.submit(m.Lost((key,)))

    def _excuse(self) -> None:
        """As secure aggregation does when its cohort is complete without some who were asked."""
        state, rng = self.state, self.world.rng
        awaited = state.outstanding()
        if state.phase is not Phase.ROUND or state.closing or not self.world.chance(0.2):
            return
        late = tuple(id for id in awaited if rng.random() < 0.5)
        cohort = len(state.deliveries) + len(awaited) - len(late)
        enough = max(state.rules.enough(state.goal, len(state.quarantined)), 2)
        if late and (cohort >= state.goal or (state.overdue and cohort >= enough)):
            self.excused += len(late)
            self.submit(m.Excused(late, state.round))

    def _tick(self) -> None:
        if self.up:
            if lost := self.liveness.expired(self.world.now):
                self.submit(m.Dropped(lost))
            at = federation.next_tick(self.state, self.world.now)
            if at is not None and at <= self.world.now:
                self.submit(m.Tick())
            if self.world.secure and self.up:
                self._excuse()
        self.world.later(500, self._tick)

    def _check(
        self, before: State, event: m.AnyEvent, after: State, effects: tuple[m.Effect, ...]
    ) -> None:
        for promise in broken_promises(before, event, after, effects):
            self.world.broken(promise)


class Person:
    """A participant on a line that loses and repeats; some lie."""

    def __init__(self, world: World, name: str, *, lies: bool) -> None:
        self.world, self.name, self.lies = world, name, lies
        self.slow = world.rng.choice((1, 1, 1, 10))
        self.state = part.ParticipantState()
        self.inside = False
        self.life = 0

    def arrive(self) -> None:
        self.inside = False
        self.state = part.ParticipantState()
        self.life += 1
        self._rendezvous()

    def _say(self, event: m.AnyEvent, then: Callable[[Any], None]) -> None:
        """Send a request; `then` hears the answer, or None when either way was lost."""
        world, life = self.world, self.life

        def arrives() -> None:
            if world.chance(world.loss) or not world.coordinator.up:
                return answer(None)
            effects = world.coordinator.submit(event)
            if world.chance(0.05):
                world.coordinator.submit(event)  # the network repeats itself
            return answer(None if world.chance(world.loss) else effects)

        def answer(effects: Any) -> None:
            delay = TIMEOUT if effects is None else world.rng.randrange(1, 200)
            world.later(delay, lambda: then(effects) if life == self.life else None)

        world.later(world.rng.randrange(1, 200), arrives)

    def _rendezvous(self) -> None:
        def heard(effects: Any) -> None:
            if effects and isinstance(effects[0], m.Refused):
                return  # expelled: never comes again
            self.inside = bool(effects) and m.Reply("ACCEPT") in effects
            if self.inside:
                self._beat(self.life)
            else:
                self.world.later(
                    self.world.rng.randrange(500, 3_000), self._again(self._rendezvous)
                )

        self._say(m.Rendezvous(self.name), heard)

    def _again(self, action: Callable[[], None]) -> Callable[[], None]:
        life = self.life
        return lambda: action() if life == self.life else None

    def _beat(self, life: int) -> None:
        world = self.world
        if life != self.life or not self.inside:
            return
        if world.chance(0.01):
            world.later(world.rng.randrange(1_000, 60_000), self.arrive)  # killed, comes back
            self.life += 1
            return
        if world.coordinator.up and not world.chance(world.loss):
            self._heard(federation.advert(world.coordinator.state, self.name))
        world.later(world.rng.randrange(500, 3_000), lambda: self._beat(life))

    def _heard(self, advert: Any) -> None:
        if isinstance(advert, m.Refused):
            self.inside = False
            self._rendezvous()
            return
        self.world.coordinator.liveness.heard(self.name, self.world.now)
        heard = part.Heard(advert.phase, advert.round, advert.expected)
        self.state, effects = part.apply(self.state, heard)
        for effect in effects:
            if isinstance(effect, part.Train):
                self._train(effect.round)

    def _train(self, round_: int) -> None:
        task = federation.task(self.world.coordinator.state, self.name)
        if isinstance(task, m.Refused) or task.round != round_ or not self.world.coordinator.up:
            self.state, _ = part.apply(self.state, part.Failed())
            return
        duration = self.world.rng.randrange(100, 5_000) * self.slow
        self.world.later(duration, self._again(lambda: self._deliver(round_)))

    def _deliver(self, round_: int) -> None:
        """Liars send bad updates, for wrong rounds, or another one the second time."""
        digest, lie = f"{self.name} {round_}", self.lies and self.world.faulty
        event: m.AnyEvent = m.Delivered(self.name, round_, digest, 10)
        if lie:
            event = self.world.rng.choice(
                (
                    m.Quarantined(self.name, round_, "not finite"),
                    m.Delivered(self.name, round_ + 1, digest, 10),
                    m.Delivered(self.name, round_ - 1, digest, 10),
                    m.Delivered(self.name, round_, str(self.world.rng.random()), 10),
                    m.Delivered(self.name, round_, digest, -3),
                )
            )
        self._say(event, lambda effects: self._answered(round_, event, effects))

    def _answered(self, round_: int, event: m.AnyEvent, effects: Any) -> None:
        if effects is None or effects == ():
            known = isinstance(event, m.Quarantined)
            self.world.coordinator.bad += known
            if not known:
                self._deliver(round_)  # the reply was lost: say it again
                return
        refused = next((e for e in effects or () if isinstance(e, m.Refused)), None)
        if refused and refused.code == m.Reason.UnknownParticipant:
            self.inside = False
            self._rendezvous()
        counted = any(isinstance(e, m.Counted) for e in effects or ())
        counted |= refused is not None and refused.code == m.Reason.DifferentUpdate
        result = part.Trained() if counted else part.Failed()
        self.state, _ = part.apply(self.state, result)


def _rules(rng: random.Random) -> Rules:
    asynchronous = rng.random() < 0.2
    least = rng.randrange(1, 5)
    return Rules(
        rounds=rng.randrange(1, 12),
        epochs=rng.randrange(4),
        min_participants=least,
        fraction_participants=rng.choice((1.0, 1.0, 0.6, 0.5, 0.3)),
        spares=rng.randrange(4),
        controller=rng.choice(("random", "ordered", "all")),
        over_selection=rng.choice((1.0, 1.3, 2.0)),
        quorum=rng.choice((1.0, 0.8, 0.5)),
        round_deadline=rng.choice((0.0, 5.0, 30.0)),
        max_strikes=rng.choice((1, 3)),
        buffer=least + rng.randrange(3) if asynchronous else 0,
        max_staleness=rng.randrange(3) if asynchronous else 0,
    )


def simulate(seed: int) -> Report:
    """Run the world of `seed` to its end."""
    world = World(seed)
    try:
        return world.run()
    except Violation as violation:
        transcript = "\n".join(violation.transcript)
        return Report(seed, world.count, violation.promise, transcript, world.counts())
