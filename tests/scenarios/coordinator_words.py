"""The words of a coordinator's transcripts.

    > run total_steps=4 min_clients=2        a new run with this configuration
    > 5 join a                               at 5 s, a client named `a` joins
    > 5 ready a        > 9 health a unhealthy=b speed=100       > 9 withdraw a
    > 9 witness a sees=a,b model=m           (by default it saw everyone who had work)
    > 9 witness a screens=c                  (c's result came, and nobody should learn it)
    > 9 witness a passes=b fails=c           (as an auditor of their results)
    > 9 gone a who=c,d twice=e               (e told of two results for one share)
    > 30 cooldown a at=store/1 model=m       > 9 tick    > 9 pause    > 9 resume
    > 9 update total_steps=8                 > show      > work    > storing
    > due 9        > audits                  who audits whose results now, and how it went so far

Any field of a message can be said differently to lie: `epoch=`, `height=`, `index=`, `position=`,
`bloom=full`, `bloom=short`, `elected=no`, `as=x` (the sender).
"""

from hashlib import sha256
from typing import Any

import msgspec

from folkmoot.core import bloom, coordinator
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.absence import storing
from folkmoot.core.coordinator.audits import auditors
from folkmoot.core.coordinator.checkpoints import savers
from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.coordinator.health import participant_item
from folkmoot.core.machine import Effect
from scenarios.transcript import Words


def identity(name: str) -> bytes:
    """Names sort as their clients do."""
    return name.encode().ljust(32, b"\0")


def ids(names: str) -> tuple[bytes, ...]:
    return tuple(identity(name) for name in names.split(",") if name)


def name(identity_: bytes) -> str:
    return identity_.rstrip(b"\0").decode()


def model_hash(label: str) -> bytes:
    return sha256(label.encode()).digest() if label else b""


class CoordinatorWords(Words):
    machine = coordinator
    codes = tuple(reason.name for reason in m.Reason)

    def __init__(self) -> None:
        super().__init__()
        self.hashes: dict[bytes, str] = {model_hash("m"): "m"}

    def create_run(self, **named: str) -> Coordinator:
        return coordinator.create(_run(None, named), 0)

    def say_join(self, who: str, run: str = "moot", holds: str = "", address: str = "") -> m.Join:
        return m.Join(identity(who), run, model_hash(holds), address.encode())

    def say_ready(self, who: str, epoch: str | None = None) -> m.Ready:
        return m.Ready(identity(who), self._epoch(epoch))

    def say_withdraw(self, who: str) -> m.Withdraw:
        return m.Withdraw(identity(who))

    def say_gone(
        self,
        by: str,
        who: str = "",
        twice: str = "",
        epoch: str | None = None,
        height: str | None = None,
    ) -> m.CallGone:
        election = self.state.election
        told = (election.height if election else 0) if height is None else int(height)
        return m.CallGone(identity(by), self._epoch(epoch), told, ids(who), ids(twice))

    def say_health(
        self, who: str, unhealthy: str = "", speed: str = "0", unreachable: str = ""
    ) -> m.HealthCheck:
        return m.HealthCheck(identity(who), ids(unhealthy), int(speed), ids(unreachable))

    def say_cooldown(
        self, who: str, at: str = "store/1", model: str = "m", epoch: str | None = None
    ) -> m.OpportunisticCooldown:
        return m.OpportunisticCooldown(identity(who), self._epoch(epoch), at, model_hash(model))

    def say_pause(self) -> m.Pause:
        return m.Pause()

    def say_resume(self) -> m.Resume:
        return m.Resume()

    def say_update(self, **named: str) -> m.Update:
        return m.Update(_run(self.state.run, named))

    def say_witness(self, who: str, sees: str | None = None, **lies: str) -> Any:
        state = self.state
        label = lies.get("model", "m")
        self.hashes[model_hash(label)] = label
        if not state.epoch.rounds:
            no_bloom = bytes(8)
            proof = WitnessProof(0, 0, True)
            return m.OpportunisticWitness(
                identity(who), 0, 0, proof, no_bloom, no_bloom, bytes(32), model_hash(label)
            )
        current = state.round
        place = state.find(identity(who))
        index = int(lies["index"]) if "index" in lies else state.index(current, place or 0) or 0
        proof = state.committee(current).get_witness(index)
        shape = state.bloom_shape(current, index)
        seen = self._workers() if sees is None else ids(sees)
        bits = bloom.fill([participant_item(x) for x in seen], shape)
        if lies.get("bloom") == "full":
            bits = b"\xff" * len(bits)
        if lies.get("bloom") == "short":
            bits = bits[1:]
        return m.OpportunisticWitness(
            identity(lies.get("as", who)),
            self._epoch(lies.get("epoch")),
            int(lies.get("height", current.height)),
            WitnessProof(
                int(lies.get("position", proof.position)),
                index,
                {"yes": True, "no": False}.get(lies.get("elected", ""), proof.witness),
            ),
            bits,
            bits,
            bytes(32),
            model_hash(label)[: int(lies.get("hash_bytes", 32))],
            screened=self.places(lies.get("screens", "")),
            passed=self.places(lies.get("passes", "")),
            failed=self.places(lies.get("fails", "")),
        )

    def places(self, said: str) -> tuple[int, ...]:
        """Places, by number or by name."""
        names = [x for x in said.split(",") if x]
        places = (int(x) if x.isdigit() else self.state.find(identity(x)) for x in names)
        return tuple(place for place in places if place is not None)

    def _workers(self) -> list[bytes]:
        """Everyone who had work in the round that is attested now."""
        state = self.state
        work = state.round_at(state.round.height - state.run.config.delay)
        if work is None:
            return []
        busy = state.assignment(work).busy().tolist()
        return [state.epoch.clients[state.place(work, i)].id for i in busy]

    def _epoch(self, said: str | None) -> int:
        return self.state.epoch_number if said is None else int(said)

    def ask_show(self) -> list[str]:
        state, p = self.state, self.state.progress
        held = [f"{name(c.id)}{f' ({c.left})' if c.left else ''}" for c in state.epoch.clients]
        owed = f", owed {spans(p.owed)}" if p.owed else ""
        lines = [
            f"{state.phase}, epoch {state.epoch_number}",
            f"clients: {', '.join(held) or 'none'}; "
            f"waiting: {', '.join(name(c.id) for c in state.pending) or 'none'}",
            f"step {p.step}, data index {p.data_index}, {p.tokens} tokens learnt{owed}",
        ]
        kept = state.checkpoint
        at = f" at {kept.location}, step {kept.progress.step}" if kept.location else ""
        return [*lines, f"checkpoint: {kept.source}{at}"]

    def ask_audits(self) -> list[str]:
        clients = self.state.epoch.clients
        given = [
            f"{name(clients[maker].id)} is audited by "
            + ", ".join(name(clients[place].id) for place in who)
            for maker, who in auditors(self.state, self.state.round).items()
        ] or ["nobody is audited"]
        return [
            *given,
            *(f"{name(r.id)} passed {r.passed} and failed {r.failed}" for r in self.state.audits),
        ]

    def ask_storing(self) -> list[str]:
        clients = self.state.epoch.clients
        places = sorted(storing(self.state) or savers(self.state))
        return [name(clients[place].id) for place in places] or ["nobody"]

    def ask_work(self) -> list[str]:
        state, current = self.state, self.state.round
        return [
            f"{name(state.epoch.clients[state.place(current, i)].id)}: {spans(share)}"
            for i, share in state.assignment(current).shares()
        ] or ["nothing"]

    def describe(self, effect: Effect) -> str:
        match effect:
            case m.Updated(changes):
                return f"changed: {'; '.join(changes) or 'nothing'}"
            case m.ClientJoined(who):
                return f"{name(who)} waits for the next epoch"
            case m.ClientRemoved(who, why):
                return f"{name(who)} removed: {why}"
            case m.PeersUnreachable(who, peers):
                return f"{name(who)} cannot reach {', '.join(map(name, peers))}"
            case m.EpochStarted(epoch, clients):
                return f"epoch {epoch} starts with {clients} clients"
            case m.RoundStarted(_, height, step, samples):
                return f"round {height}, step {step}: {samples} samples"
            case m.WitnessAccepted(who, height, _):
                return f"{name(who)} is a witness of round {height}"
            case m.RoundJudged(height, attested, owed, screened):
                said = f"round {height} judged: {attested} samples learnt, {owed} owed"
                return f"{said}; results screened: {screened}" if screened else said
            case m.ResultsAudited(height, passed, failed):
                return f"results of round {height} audited: {passed} passed, {failed} failed"
            case m.EpochEnded(epoch, trained):
                return f"epoch {epoch} ends{'' if trained else ' before it trained'}"
            case m.CheckpointWanted(_, count, hash_):
                return f"checkpoint of {self.hashes[hash_]} wanted from {count}"
            case m.CheckpointStored(location, step):
                return f"checkpoint of step {step} stored at {location}"
            case m.Rewound(before, to):
                return f"rewound from step {before} to {to}"
        return super().describe(effect)


def spans(spans: Any) -> str:
    return " ".join(f"{s.start}-{s.stop - 1}" for s in spans)


def _run(run: Run | None, named: dict[str, str]) -> Run:
    """A run with the fields said, over the present one or over a small default."""
    defaults: dict[str, Any] = {
        "total_steps": 100,
        "min_clients": 2,
        "global_batch_size_start": 8,
        "delay": 0,
        "work_by_speed": False,
        "warmup_time": 30,
        "max_round_train_time": 20,
        "round_witness_time": 5,
        "cooldown_time": 30,
        "epoch_time": 600,
    }
    config = msgspec.to_builtins(run.config) if run else defaults
    model = msgspec.to_builtins(run.model) if run else {"max_seq_len": 10, "checkpoint": "store/"}
    run_id = named.pop("run_id", run.run_id if run else "moot")
    for key, text in named.items():
        table = config if key in CoordinatorConfig.__struct_fields__ else model
        table[key] = {"true": True, "false": False}.get(text, text)
    return Run(
        run_id=run_id,
        config=msgspec.convert(config, CoordinatorConfig, strict=False),
        model=msgspec.convert(model, Model, strict=False),
    )
