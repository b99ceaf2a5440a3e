"""What must hold in a run to which strangers come that do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.state import Coordinator, Phase
from folkmoot.core.identity import short
from folkmoot.simulate.audit import Problems, Step

if TYPE_CHECKING:
    from folkmoot.simulate.run.audit import RunAudit

RunStep = Step[Coordinator]


def newcomers_do_not_crowd_an_epoch(audit: RunAudit, step: RunStep) -> Problems:
    """Beside clients that have worked, an epoch has few newcomers, and leaves none of those out."""
    if not step.moved or step.after.phase is not Phase.Warmup:
        return
    config = step.after.run.config
    removed = {effect.id for effect in step.effects if isinstance(effect, m.ClientRemoved)}
    worked = {p.id for p in step.before.pending if p.proven} - removed
    chosen = {client.id for client in step.after.epoch.clients}
    left_out = worked - chosen
    if left_out and (len(chosen) < config.max_clients or chosen - worked):
        yield f"{', '.join(map(short, sorted(left_out)))} worked and found no place"
    places = max(len(worked) * config.newcomers_percent // 100, 1)
    places = max(places, config.clients_to_begin - len(worked))
    if worked and config.newcomers_percent and len(chosen - worked) > places:
        yield f"{len(chosen - worked)} newcomers beside {len(worked)} who worked"


def rounds_begin_with_those_who_are_ready(audit: RunAudit, step: RunStep) -> Problems:
    """Nobody has work in the first round who is not ready, where enough are."""
    if not step.moved or step.before.phase is not Phase.Warmup or not step.after.epoch.rounds:
        return
    ready = int.from_bytes(step.after.epoch.ready, "little")
    here = [p for p, client in enumerate(step.after.epoch.clients) if not client.left]
    late = [p for p in here if not ready >> p & 1]
    if late and len(here) - len(late) >= step.before.run.config.min_clients:
        yield f"places {late} of {here} are not ready"


def only_who_worked_is_proven(audit: RunAudit, step: RunStep) -> Problems:
    """Nobody is proven of whom no result was attested, and who never was a witness."""
    if step.after.epoch.proven == step.before.epoch.proven:
        return
    proven = int.from_bytes(step.after.epoch.proven, "little")
    for place, client in enumerate(step.after.epoch.clients):
        if proven >> place & 1 and client.id not in audit.worked:
            yield f"{short(client.id)} is proven"
