"""Only honest clients, of all kinds, for as long as one likes: nobody is screened or ejected."""

from pathlib import Path

import numpy as np
import torch

from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.schedule import Constant
from liars_authority import Auditor, Round_, Table
from liars_client import Client, opened, witness
from liars_play import settle

BATCH = 24


def all_honest(files: tuple[Path, Path], rounds: int, audited: int) -> dict[str, float]:
    """Six honest clients: one slow, one flaky, one that joins anew again and again."""
    data = opened(files[0])
    rate = Constant(base_lr=0.004)
    clients = [Client(n, data, 1, 1 if n == 0 else 4, rate) for n in range(6)]
    draw, table, auditor = np.random.default_rng(0), Table(clients, audited), Auditor()
    names = {client.name for client in clients}
    lost = 0
    flight: list[Round_] = []
    for n, client in enumerate(clients):
        client.threads = 1 + n % 2
    for step in range(rounds):
        if step % 50 == 49:
            clients[2].join_anew(clients[3])
        if step >= 2:
            table.audit(step, flight[-2], names, auditor)
        sent, shares = {}, {}
        for n, client in enumerate(clients):
            torch.set_num_threads(client.threads)
            first = step * BATCH + n * 4
            payload = client.train(step, first)
            shares[client.name] = (Span(first, first + client.share),)
            if n != 1 or draw.random() > 0.3:
                sent[client.name] = payload
            client.made.clear()
        torch.set_num_threads(1)
        votes = [witness(c, step, sent, clients, True) for c in clients]
        kept = table.close(votes, 0, sent)
        lost += len(sent) - len(kept)
        flight = [*flight[-2:], Round_(sent, shares, kept)]
        if step:
            settle(clients, flight[-2], step - 1)
        if step % 100 == 99:
            said = f"{lost} screened, {len(table.out)} ejected, {dict(table.verdicts)}"
            records = [(record.passed, record.failed) for record in table.state.audits]
            print(f"  {step + 1} rounds: {said}, {records}", flush=True)
    figures = {"rounds": rounds, "results screened": lost, "clients ejected": len(table.out)}
    percent = 100 * auditor.seconds / sum(client.seconds for client in clients)
    cost = {"per cent audited": audited, "per cent of the time of training": round(percent, 1)}
    return {**figures, **cost, **table.verdicts}
