"""One run of honest clients and liars, from its first round to its loss on held-out text."""

from __future__ import annotations

from pathlib import Path

import msgspec

from folkmoot.core.coordinator.assignment import Share, Span
from folkmoot.core.schedule import Cosine
from folkmoot.learning.evaluate import Evaluation
from liars_attacks import Setting, lie
from liars_authority import Auditor, Round_, Table
from liars_client import Client, opened, witness

ROUNDS, AUDITED = 100, 100
"""Per cent of the results are audited."""
RATE = Cosine(base_lr=0.012, warmup_steps=5, total_steps=ROUNDS)


class Outcome(msgspec.Struct):
    loss: float
    ejected: list[int | None]
    """The round in which each liar was ejected, if it was."""
    innocent: int
    """Honest clients that were ejected."""
    screened: int
    """Honest results that were not learnt."""
    verdicts: dict[str, int] = {}


def play(
    files: tuple[Path, Path],
    honest: int,
    liars: int,
    attack: str,
    screen: bool,
    setting: Setting,
    seed: int = 0,
) -> Outcome:
    data, held_out = (opened(path) for path in files)
    clients = [Client(n, data, setting.bits, 0, RATE) for n in range(honest + liars)]
    good, bad = clients[:honest], clients[honest:]
    table, rounds, auditor = Table(clients, AUDITED), list[Round_](), Auditor()
    names = {c.name for c in good}
    ejected: dict[bytes, int] = {}
    lost = 0
    for step in range(ROUNDS):
        here = [c for c in clients if c.name not in ejected and c.name not in table.dropped]
        if screen and step >= 2:
            table.audit(step, rounds[step - 2], names, auditor)
        sent: dict[bytes, bytes] = {}
        shares: dict[bytes, Share] = {}
        for n, c in enumerate(here):
            c.share = setting.batch // len(here)
            first = seed * 1_000_000 + step * setting.batch + n * c.share
            shares[c.name] = (Span(first, first + c.share),)
            made = lie(attack, c, step, first, sent) if c in bad else c.train(step, first)
            if made is not None:
                sent[c.name] = made
        # All honest witnesses hold the same results of all rounds, so one finds what each does.
        vote = witness(good[0], step, sent, clients, screen)
        votes = [vote for c in good if c in here]
        kept = table.close(votes, sum(c in here for c in bad), sent)
        lost += sum(c.name in sent and c.name not in kept for c in good)
        for name in table.out - ejected.keys():
            ejected[name] = step + 1
        rounds.append(Round_(sent, shares, kept))
        if step:
            # Witnesses did not see its result of the round before; now it is accused of that.
            table.dropped |= rounds[step - 1].shares.keys() - rounds[step - 1].payloads.keys()
            settle(here, rounds[step - 1], step - 1)
    loss = Evaluation(good[0].model, held_out, 128).finish(32).loss
    when = [ejected.get(c.name) for c in bad]
    innocent = sum(c.name in ejected for c in good)
    return Outcome(loss, when, innocent, lost, dict(table.verdicts))


def settle(clients: list[Client], round_: Round_, step: int) -> None:
    """Everyone learns what was kept of a round; one decodes it, since all models are equal."""
    payloads = [round_.payloads[name] for name in sorted(round_.kept)]
    first, *others = clients
    first.learn(payloads, step)
    for client in others:
        client.follow(first, payloads, step)
