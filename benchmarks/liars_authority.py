"""The run's authority, as far as it weighs results: screening, audits, marks and ejections.

The rules are the run's own (`audits.py`, `standing.py`, a quorum); rounds are made here.
"""

from __future__ import annotations

import time
from collections import Counter
from hashlib import sha256
from typing import NamedTuple

import torch
from msgspec.structs import replace

from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator.assignment import Share, Span, numbers
from folkmoot.core.coordinator.audits import audited_samples, auditors, found, others
from folkmoot.core.coordinator.config import CoordinatorConfig, Run
from folkmoot.core.coordinator.standing import count_audits, weigh
from folkmoot.core.coordinator.state import Client as Place
from folkmoot.core.coordinator.state import Coordinator, Epoch, Round, Witness
from folkmoot.core.quorum import witness_quorum
from folkmoot.learning.trial import passes
from liars_client import Client


class Round_(NamedTuple):
    """What was sent in a round: payloads, the shares they stand for, and who is learnt from."""

    payloads: dict[bytes, bytes]
    shares: dict[bytes, Share]
    kept: list[bytes]


class Auditor:
    """Audits as the learner of a client does; equal clients find the same, so it is found once for
    each number of threads."""

    def __init__(self) -> None:
        self.seconds, self._found = 0.0, dict[tuple[bytes, int], bool]()

    def passes(self, client: Client, payloads: list[bytes], samples: Share) -> bool:
        key = (sha256(b"".join(payloads)).digest(), client.threads)
        if key not in self._found:
            began = time.process_time()
            along = client.method.contrast(payloads[0], payloads[1:])
            torch.set_num_threads(client.threads)
            good = passes(client.model, along, client.data.samples(numbers(samples)))
            torch.set_num_threads(1)
            self._found[key] = good
            self._took = time.process_time() - began
        self.seconds += self._took
        return self._found[key]


class Table:
    """Places, marks and ejections; so many per cent of the results are audited."""

    def __init__(self, clients: list[Client], audited: int) -> None:
        config = CoordinatorConfig(total_steps=1, delay=1, verification_percent=audited)
        places = tuple(Place(client.name) for client in clients)
        run, epoch = Run(run_id="liars", config=config), Epoch(clients=places)
        self.state = Coordinator(run, Phase.RoundTrain, 0, epoch=epoch)
        self.clients, self.verdicts = clients, Counter[str]()
        self.dropped = set[bytes]()  # who sent nothing and so lost its place

    @property
    def out(self) -> set[bytes]:
        return {ejection.id for ejection in self.state.ejected}

    def close(
        self, votes: list[frozenset[bytes]], liars: int, sent: dict[bytes, bytes]
    ) -> list[bytes]:
        """Who is learnt from, when the honest witnesses screen so and liars attest everybody."""
        quorum = witness_quorum(len(votes) + liars)
        screened, learnt = [], []
        for place, client in enumerate(self.clients):
            against = sum(client.name in vote for vote in votes)
            if client.name in sent and against >= quorum:
                screened.append(place)
            elif client.name in sent and len(votes) + liars - against >= quorum:
                learnt.append(place)
        self.state = weigh(self.state, screened, learnt)
        return [self.clients[place].name for place in learnt]

    def audit(self, step: int, sent: Round_, good: set[bytes], auditor: Auditor) -> None:
        """In round `step`, of the results of two rounds before; others than the `good` pass each
        other."""
        names, out = [c.name for c in self.clients], self.out | self.dropped
        absent = tuple(p for p, name in enumerate(names) if name in out)
        spans = (Span(0, len(names)),)
        rounds = [Round(h, h, _seed(h), spans, absent) for h in range(step - 2, step + 1)]
        state = replace(self.state, epoch=replace(self.state.epoch, rounds=tuple(rounds)))
        by, given = rounds[-1], auditors(state, rounds[-1])
        learnt = sorted(names.index(name) for name in sent.kept if name not in out)
        passed, failed = ({p: list[int]() for p in range(len(names))} for _ in range(2))
        for maker, who in given.items():
            beside = others(by, maker, learnt)
            if maker not in learnt or not beside:
                continue
            samples = audited_samples(by, maker, sent.shares[names[maker]])
            payloads = [sent.payloads[names[p]] for p in (maker, *beside)]
            for place in who:
                truth = auditor.passes(self.clients[place], payloads, samples)
                # Who accuses the honest as well is found sooner, alone with what it says.
                spared = {names[place], names[maker]}.isdisjoint(good)
                passes = spared or truth
                (passed if passes else failed)[place].append(maker)
        committee = state.committee(by)
        said = [
            Witness(committee.get_witness(i), *[b""] * 4, (), tuple(passed[p]), tuple(failed[p]))
            for p in range(len(names))
            for i in _index(state, p)
        ]
        found_ = found(state, replace(by, witnesses=tuple(said)))
        for kind, places in zip(("passed", "failed", "alone"), found_, strict=True):
            for place in places:
                who_ = "honest" if names[place] in good else "liars"
                self.verdicts[f"{who_} {kind}"] += 1
        self.state = replace(count_audits(state, *found_), epoch=self.state.epoch)


def _index(state: Coordinator, place: int) -> list[int]:
    index = state.index(state.round, place)
    return [] if index is None else [index]


def _seed(height: int) -> int:
    return int.from_bytes(sha256(height.to_bytes(8, "little")).digest()[:8], "little")
