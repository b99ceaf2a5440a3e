"""A run in memory: clients and a coordinator joined by a perfect network, and then by a worse one.

`lose` is asked about every action before it is carried out: true is as if it had come to nothing.
"""

from collections import deque
from collections.abc import Callable
from hashlib import sha256

from folkmoot.core.coordinator import Run, apply, create, next_tick
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import machine
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.coordinator.state import Phase

Event = c.Event


class MemoryRun:
    """A run in memory. A model is the list of all it has learnt."""

    def __init__(self, clients: int, **config: object) -> None:
        defaults = {"total_steps": 6, "rounds_per_epoch": 3, "global_batch_size_start": 12}
        run = Run(
            run_id="moot",
            config=CoordinatorConfig(**{**defaults, "min_clients": clients, **config}),
            model=Model(checkpoint="store/"),
        )
        self.now = 0
        self.seed = 0
        self.state = create(run, 0)
        self.effects: list[m.Effect] = []
        self.clients = {bytes([65 + i]) * 32: None for i in range(clients)}
        self.clients = {who: ClientState(who, "moot") for who in self.clients}
        self.queue: deque[tuple[bytes, Event]] = deque()
        self.learnt: dict[bytes, list[bytes]] = {who: [] for who in self.clients}
        self.results: dict[tuple[int, int, bytes], Result] = {}
        self.lose: Callable[[bytes, c.Effect], bool] = lambda who, action: False
        self._show()

    def run_until(self, done: Callable[["MemoryRun"], bool], limit: int = 20_000) -> None:
        for _ in range(limit):
            if done(self):
                return
            if self.queue:
                who, event = self.queue.popleft()
                for action in machine.apply(self.clients[who], event, self.now):
                    self._carry_out(who, action)
            else:
                self._let_time_pass()
        raise AssertionError(f"still {self.state.phase} after {limit} events")

    def _let_time_pass(self) -> None:
        due = next_tick(self.state, self.now)
        ticks = {who: machine.next_tick(x, self.now + 1) for who, x in self.clients.items()}
        self.now = min([*ticks.values(), *([] if due is None else [max(due, self.now)])])
        if due is not None and due <= self.now:
            self._submit(b"", m.Tick())
        for who, tick in ticks.items():
            if tick <= self.now:
                self.queue.append((who, c.Tick()))

    def _submit(self, who: bytes, message: m.AnyEvent) -> None:
        self.seed += 1
        before = self.state
        self.state, effects = apply(before, message, self.now, self.seed)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, m.Refused) and who:
                self.queue.append((who, c.WasRefused(message, effect)))
        if self.state is not before:
            self._show()

    def _show(self) -> None:
        self.queue.extend((who, c.Saw(self.state)) for who in self.clients)

    def _carry_out(self, who: bytes, action: c.Effect) -> None:
        if self.lose(who, action):
            return
        learnt = self.learnt[who]
        match action:
            case c.Submit(message):
                self._submit(who, message)
            case c.Load(epoch, _, _, holders):
                learnt[:] = self.learnt[holders[0]] if holders else []
                self.queue.append((who, c.Loaded(epoch, self.model_hash(who))))
            case c.Train(epoch, height, step, share):
                commitment = commitment_hash(step, share, who)
                result = Result(epoch, height, who, commitment, commitment, 1)
                self.results[epoch, height, who] = result
                self.queue.append((who, c.Trained(result, 100)))
            case c.Tell(result):
                others = [other for other in self.clients if other != who]
                self.queue.extend((other, c.Offered(result)) for other in others)
            case c.Fetch(result):
                self.queue.append((who, c.Arrived(result)))
            case c.Ask(epoch, height, _, shares):
                for sender in shares:
                    self.queue.append((who, c.Arrived(self.results[epoch, height, sender])))
            case c.Learn(epoch, height, _, results, _):
                learnt += [result.commitment for result in results]
                self.queue.append((who, c.Learnt(epoch, height, self.model_hash(who))))
            case c.Probe(peers):
                self.queue.extend((who, c.Heard(peer)) for peer in peers if peer in self.clients)
            case c.Upload(epoch, step, held) | c.Save(epoch, step, held):
                self.queue.append((who, c.Uploaded(epoch, f"store/{step}", held)))

    def model_hash(self, who: bytes) -> bytes:
        return sha256(b"".join(self.learnt[who])).digest()

    def judged(self) -> tuple[int, int]:
        rounds = [e for e in self.effects if isinstance(e, m.RoundJudged)]
        return sum(r.attested for r in rounds), sum(r.owed for r in rounds)


def finished(run: MemoryRun) -> bool:
    return run.state.phase is Phase.Finished
