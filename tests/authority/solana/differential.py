"""The same messages to the core and to the program on the virtual machine: equal after each one.

A sequence follows from its number alone. Messages are sensible and senseless, from members,
strangers and the owner; time moves in whole seconds, as a chain's clock does. After every message
both must have refused it for the same reason, or be in the same state, byte for byte.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from msgspec.structs import replace
from solders.account import Account
from solders.pubkey import Pubkey

from authority.solana.vm import OWNER, Vm, VmRun
from core.coordinator.strategies import IDS, MAKERS, ROOT, SEQ, attest, someone
from folkmoot.authority.solana import account
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana.seeds import HashChain, next_seed
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import Coordinator, apply, create, next_tick
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run

Maker = Callable[[Coordinator, int, int], list[Any]]
START = 1_700_000_000
CHAINS = {identity: HashChain(identity, 500) for identity in IDS}
OWNERS = (m.Pause, m.Resume, m.Update)


class Differs(AssertionError):
    """The program did something else than the core."""


def call_gone(state: Coordinator, a: int, b: int) -> list[Any]:
    """One witness, all, or someone who is none calls others gone, or false."""
    election = state.election
    height = (election.height if election else 0) + (b % 17 == 16) - (b % 13 == 12)
    known = IDS if b % 7 == 6 else [client.id for client in state.epoch.clients]
    gone = tuple(x for k, x in enumerate(known) if a >> k & 1 and b % 2)
    false = tuple(x for k, x in enumerate(known) if a % 9 == k and b % 4 == 0)
    senders = [IDS, IDS[: b % 9], elected(state)[:1], [someone(a)]][b % 4]
    return [
        m.CallGone(
            sender,
            state.epoch_number - (b % 19 == 18),
            height,
            tuple(x for x in gone if x != sender or b % 5 == 0),
            tuple(x for x in false if x != sender),
        )
        for sender in senders
    ]


def elected(state: Coordinator) -> list[bytes]:
    """The witnesses of now."""
    election = state.election
    if election is None or not state.roster_size(election):
        return []
    indices = state.committee(election).witness_indices()
    return [state.epoch.clients[state.place(election, index)].id for index in indices]


def saw_some(state: Coordinator, a: int, b: int) -> list[Any]:
    """Each witness saw others than the next."""
    if not state.epoch.rounds:
        return []
    indices = state.committee(state.round).witness_indices()
    return [attest(state, index, a >> at % 3 | 1 << b % 9, b) for at, index in enumerate(indices)]


def in_anothers_name(state: Coordinator, a: int, b: int) -> list[Any]:
    """A true proof, sent by somebody else."""
    if not state.epoch.rounds:
        return []
    indices = state.committee(state.round).witness_indices()
    true = attest(state, indices[a % len(indices)], 511, 0)
    return [replace(true, sender=someone(b))]


def accuse_someone(state: Coordinator, a: int, b: int) -> list[Any]:
    """Everybody accuses one client, mostly a healthy one, twice in one message at times."""
    return [m.HealthCheck(x, (someone(a),) * (1 + b % 2), b % 5) for x in IDS if x != someone(a)]


def checkpoint(state: Coordinator, a: int, b: int) -> list[Any]:
    """Names that are near to right ones, and models."""
    names = ["step", "step-1", "", ".x", "a/b", "a b", "x" * 64, "x" * 65, "\u00e9"]
    location = (ROOT + names[a % len(names)]) if b % 3 else ROOT.rstrip("/") + "//step"
    model = state.model_hash if b % 4 else bytes(32)
    return [
        m.OpportunisticCooldown(identity, state.epoch_number, location, model) for identity in IDS
    ]


def false_checkpoint(state: Coordinator, a: int, b: int) -> list[Any]:
    return [
        m.OpportunisticCooldown(x, state.epoch_number, ROOT + "step", [bytes(32), b""][b % 2])
        for x in IDS
    ]


def change(state: Coordinator, a: int, b: int) -> list[Any]:
    """The owner changes what may change now, and what may not."""
    config, model = state.run.config, state.run.model
    changed = [
        replace(state.run, config=replace(config, total_steps=config.total_steps + a % 3)),
        replace(state.run, config=replace(config, min_clients=1 + a % 3)),
        replace(state.run, config=replace(config, delay=a % 3)),
        replace(state.run, config=replace(config, witness_nodes=a % 2)),
        replace(state.run, model=replace(model, checkpoint=["", ROOT][a % 2])),
        replace(state.run, model=replace(model, seed=a % 2)),
        replace(state.run, model=replace(model, start=["", "s3://first"][a % 2])),
        replace(state.run, config=replace(config, max_clients=5 + a % 4)),
        replace(state.run, config=replace(config, health_check_timeout=2.0 + a % 2)),
    ]
    return [m.Update(changed[b % len(changed)])]


SPOKEN: dict[str, Maker] = {
    **MAKERS,
    **{
        maker.__name__: maker
        for maker in (
            call_gone, saw_some, in_anothers_name, accuse_someone, checkpoint, false_checkpoint,
            change,
        )
    },
}  # fmt: skip
NAMES = sorted(SPOKEN)


def any_run(chance: Random) -> Run:
    least, start = chance.randint(1, 3), chance.randint(1, 9)
    epoch_time = chance.choice([3.0, 20.0, 1e5])
    config = CoordinatorConfig(
        total_steps=chance.randint(1, 8),
        min_clients=least,
        init_min_clients=least + chance.randint(0, 2),
        max_clients=chance.randint(5, 8),
        newcomers_percent=chance.choice([0, 50, 50, 100]),
        waiting_for_members_extra_time=chance.choice([0.0, 0.0, 2.0]),
        warmup_time=chance.choice([2.0, 2.0, 9.0]) if epoch_time > 9 else 2.0,
        max_round_train_time=2.0,
        round_witness_time=1.0,
        cooldown_time=2.0,
        epoch_time=epoch_time,
        rounds_per_epoch=chance.choice([None, 1, 2, 3, 4]),
        global_batch_size_start=start,
        global_batch_size_end=start + chance.randint(0, 5),
        global_batch_size_warmup_tokens=chance.randint(0, 100),
        witness_nodes=chance.choice([0, 0, 1]),
        health_check_timeout=chance.choice([3.0, 1e5]),
        delay=chance.randint(0, 2),
        work_by_speed=chance.random() < 0.5,
    )
    model = Model(max_seq_len=SEQ, checkpoint=chance.choice(["", ROOT, ROOT]))
    run = Run(run_id="run", config=config, model=model)
    assert not list(all_broken(run))
    return run


def sayable(message: Any) -> bool:
    """Whether it can be an instruction at all; what cannot, the client refuses as the core does."""
    match message:
        case m.Update(run):
            return run.run_id == "run" and not any(all_broken(run))
        case m.Pause() | m.Resume() | m.Tick():
            return True
    if len(message.sender) != 32:
        return False
    match message:
        case m.Join(run_id=run_id, model_hash=hash_):
            return run_id == "run" and len(hash_) in (0, 32)
        case m.OpportunisticWitness():
            return len(message.model_hash) == len(message.broadcast_merkle) == 32
        case m.OpportunisticCooldown(location=location):
            return len(location) < 800 and len(message.model_hash) in (0, 32)
    return True


class Pair:
    """A run in the core and on the machine, kept side by side."""

    def __init__(self, vm: Vm, run: Run, template: Account, ids: list[bytes] = IDS) -> None:
        self.seconds = START
        vm.at(self.seconds)
        self.vm, self.there = vm, VmRun(vm, run, template)
        self.core = create(run, self.now)
        for identity in ids:
            vm.fund(Pubkey(identity))
        self.record = self.there.record
        self.events = self.refusals = 0
        self.units: dict[str, int] = {}

    @property
    def now(self) -> int:
        return self.seconds * 1000

    def leap(self, seconds: int | None) -> None:
        if seconds is None:
            due = next_tick(self.core, self.now)
            seconds = 0 if due is None else -(-(due - self.now) // 1000)
        self.seconds = max(START // 2, self.seconds + seconds)
        self.vm.at(self.seconds)

    def say(self, message: Any, lie: bool = False) -> None:
        """Tell both, and compare; with a `lie` about what the sender committed itself to."""
        proof = isinstance(message, m.OpportunisticWitness)
        reveal = bytes(32) if lie and proof else self.reveal(message)
        mixed = reveal if proof else b""
        expected = apply(self.core, message, self.now, next_seed(self.record, mixed))
        refused = expected.refused.code if expected.refused else ""
        if not sayable(message):
            if not refused:
                raise Differs(f"the core takes {message}, which is no instruction")
            return
        if isinstance(message, m.Tick) and expected.state == self.core:
            refused = "NothingDue"
        if proof and lie and not refused:
            refused = "WrongReveal"
        sent = self.send(message, reveal)
        self.events += 1
        self.refusals += bool(refused)
        kind = type(message).__name__
        self.units[kind] = max(self.units.get(kind, 0), sent.units)
        if sent.error != refused:
            raise Differs(
                f"{message}\n  core: {refused or 'taken'}, program: {sent.error or 'taken'}"
            )
        if refused:
            return
        self.record = self.there.record
        got = account.state_of(self.record)
        if got != expected.state:
            raise Differs(f"{message}\n  after it {_difference(expected.state, got)}")
        self.core = expected.state

    def reveal(self, message: Any) -> bytes:
        sender = getattr(message, "sender", b"")
        if isinstance(message, m.Join):
            return CHAINS[sender].end if sender in CHAINS else bytes(32)
        slot = account.slot_of(self.record, sender)
        if slot is None or sender not in CHAINS:
            return bytes(32)
        return CHAINS[sender].reveal(slot["reveal"].tobytes()) or bytes(32)

    def send(self, message: Any, reveal: bytes) -> Any:
        if isinstance(message, m.Update):
            return self.there.update(message.run)
        owner = isinstance(message, (*OWNERS, m.Tick))
        signer = OWNER if owner else Pubkey(message.sender)
        if self.vm.svm.get_balance(signer) in (None, 0):
            self.vm.fund(signer)
        return self.there.tell(signer, say.spoken(message, self.core, 7, reveal))


def _difference(expected: Any, got: Any, where: str = "state") -> str:
    if type(expected) is type(got) and hasattr(expected, "__struct_fields__"):
        for name in expected.__struct_fields__:
            a, b = getattr(expected, name), getattr(got, name)
            if a != b:
                return _difference(a, b, f"{where}.{name}")
    if isinstance(expected, tuple) and isinstance(got, tuple) and len(expected) == len(got):
        for at, (a, b) in enumerate(zip(expected, got, strict=True)):
            if a != b:
                return _difference(a, b, f"{where}[{at}]")
    return f"{where}\n    core    {expected}\n    program {got}"


def steps(chance: Random) -> Iterator[tuple[str, int, int, int | None]]:
    """Mostly what an honest crowd does, so that the run gets somewhere."""
    for _ in range(chance.randint(8, 24)):
        name = "honest" if chance.random() < 0.5 else chance.choice(NAMES)
        leap = chance.choice([0, 0, 1, 1, None, None])
        if chance.random() < 0.02:
            leap = chance.choice([600, -400, 10**6])
        yield name, chance.randrange(512), chance.randrange(512), leap


def play(number: int, vm: Vm, template: Account) -> Pair:
    """One sequence; raises `Differs`."""
    chance = Random(number)
    pair = Pair(vm, any_run(chance), template)
    for name, a, b, leap in steps(chance):
        pair.leap(leap)
        for message in SPOKEN[name](pair.core, a, b):
            try:
                pair.say(message, lie=chance.random() < 0.01)
            except Differs as error:
                raise Differs(f"sequence {number}, in {pair.core.phase}: {error}") from None
        if chance.random() < 0.5:
            pair.say(m.Tick())
    return pair


def whole_template(vm: Vm) -> Account:
    """A coordinator account of run "run", grown and not configured."""
    made = VmRun.bare(vm, any_run(Random(0)))
    found = vm.svm.get_account(made.address)
    assert found is not None
    return found


def first_difference(program: bytes, numbers: range) -> tuple[int, str] | None:
    """How many sequences it takes until the program differs, and how; None when it never does."""
    vm = Vm(program)
    template = whole_template(vm)
    for count, number in enumerate(numbers, 1):
        try:
            play(number, vm, template)
        except Differs as error:
            return count, str(error)
    return None
