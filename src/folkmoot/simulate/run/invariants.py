"""What must hold after every event of a run, each a small function that names what is wrong.

An invariant is given the audit and the step that was just made, and yields what is wrong. All hold
whatever crashes, is lost or lies, with one bound: in a round fewer liars are elected than make a
quorum (`agreed_models_are_honest` needs it; so do the models handed on and stored).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.audits import auditors
from folkmoot.core.coordinator.client.waiting import SHORTEST_SILENCE
from folkmoot.core.coordinator.impossible import impossible
from folkmoot.core.coordinator.state import CheckpointSource, Coordinator, Left, Phase
from folkmoot.core.identity import short
from folkmoot.simulate.audit import Chart, Invariant, Problems, Step
from folkmoot.simulate.invariants import OF_EVERY_MACHINE
from folkmoot.simulate.run import reference
from folkmoot.simulate.run.committees import witnesses
from folkmoot.simulate.run.newcomers import (
    newcomers_do_not_crowd_an_epoch,
    only_who_worked_is_proven,
    rounds_begin_with_those_who_are_ready,
)

if TYPE_CHECKING:
    from folkmoot.simulate.run.audit import CalledGone, ModelLearnt, RunAudit, WaitedFor

RunStep = Step[Coordinator]
S = Phase
# The flow chart of a run, written down once more so that a changed table is noticed.
CHART: Chart = {
    S.WaitingForMembers: {S.Paused, S.Warmup},
    S.Warmup: {S.Paused, S.WaitingForMembers, S.RoundTrain},
    S.RoundTrain: {S.RoundWitness},
    S.RoundWitness: {S.Finished, S.Cooldown, S.RoundTrain},
    S.Cooldown: {S.Finished, S.Paused, S.WaitingForMembers},
    S.Paused: {S.Finished, S.WaitingForMembers},
    S.Finished: {S.Paused},
}


def a_phase_changes_once(audit: RunAudit, step: RunStep) -> Problems:
    """One event passes one edge at most."""
    count = sum(isinstance(effect, m.StateChanged) for effect in step.effects)
    if count > 1:
        yield f"{count} phases at once"


def clients_can_compute_with_it(audit: RunAudit, step: RunStep) -> Problems:
    """A client refuses a state that is impossible: no true one may be."""
    if wrong := impossible(step.after):
        yield wrong


def phases_are_earned(audit: RunAudit, step: RunStep) -> Problems:
    """No phase ends before its time unless what it waits for has happened."""
    if not step.moved or step.before.pause_wanted != step.after.pause_wanted:
        return
    before, config = step.before, step.before.run.config
    waited = step.now - before.phase_start
    if before.phase is S.RoundTrain:
        heard = len(step.after.round.witnesses)
        quorum = reference.quorum(reference.elected(before, before.round))
        early = heard < quorum and _still_awaited(step)
        if early and waited < config.max_round_train_time * 1000:
            yield f"training ended with {heard} of {quorum} witnesses after {waited} ms"
    if before.phase is S.RoundWitness:
        missing = _still_awaited(step)
        if missing and waited < config.round_witness_time * 1000:
            yield f"the round closed {len(missing)} witnesses early after {waited} ms"
    if (before.phase, step.after.phase) == (S.WaitingForMembers, S.Warmup):
        count = len(step.after.epoch.clients)
        if count < config.clients_to_begin:
            yield f"an epoch began with {count} clients"


def _still_awaited(step: RunStep) -> set[int]:
    """Places of elected witnesses that were not heard and do not leave."""
    before, after = step.before, step.after
    current = after.round_at(before.round.height) or before.round
    heard = {before.place(before.round, w.proof.index) for w in current.witnesses}
    if isinstance(step.event, m.OpportunisticWitness):
        heard.add(before.find(step.event.sender) or 0)
    removed = {before.find(e.id) for e in step.effects if isinstance(e, m.ClientRemoved)}
    leaving = {place for state in (before, after) for place, _ in state.epoch.leaving}
    return set(witnesses(before, before.round)) - heard - leaving - removed


def only_whom_a_quorum_cannot_reach_is_gone(audit: RunAudit, step: RunStep) -> Problems:
    """Nobody is called gone by fewer than a quorum of the witnesses of this round."""
    marked = set(step.after.epoch.leaving) - set(step.before.epoch.leaving)
    gone = {place for place, why in marked if why is Left.Gone}
    for effect in step.effects:
        if isinstance(effect, m.ClientRemoved) and effect.why is Left.Gone:
            place = step.before.find(effect.id)
            if place is not None and (place, Left.Gone) not in step.before.epoch.leaving:
                gone.add(place)
    election = step.before.election
    if not gone or election is None:
        return
    places = witnesses(step.before, election)
    said = {step.before.place(election, i): called for i, called in step.before.epoch.called_gone}
    if isinstance(step.event, m.CallGone):
        accused = tuple(step.before.find(identity) or 0 for identity in step.event.gone)
        said[step.before.find(step.event.sender) or 0] = accused
    for place in gone:
        votes = sum(place in said.get(witness, ()) for witness in places)
        if votes < reference.quorum(len(places)):
            yield f"place {place} is called gone by {votes} of {len(places)}"


def only_who_spoke_twice_is_expelled(audit: RunAudit, step: RunStep) -> Problems:
    """Nobody is expelled who did not tell of two results for one share of this epoch."""
    for identity in set(step.after.expelled) - set(step.before.expelled):
        told = [
            claims.get(identity, [])
            for (epoch, _), claims in audit.published.items()
            if epoch == step.before.epoch_number
        ]
        if max(map(len, told), default=0) < 2:
            yield f"{short(identity)} is expelled"


def only_nonsense_is_screened(audit: RunAudit, step: RunStep) -> Problems:
    """No quorum screens, and nobody is ejected, who sent only what it trained."""
    marked = {identity for identity, _ in step.after.marks}
    out = {ejection.id for ejection in step.after.ejected}
    for identity in (marked | out) - audit.nonsense:
        yield f"{short(identity)} was screened"


def only_who_lied_fails_audits(audit: RunAudit, step: RunStep) -> Problems:
    """Neither whose results are what it was assigned, nor an honest auditor, whatever fewer liars
    than a quorum of the auditors say."""
    failed = {record.id for record in step.after.audits if record.failed}
    for identity in failed - audit.nonsense - audit.false_auditors:
        yield f"{short(identity)} failed an audit"


def auditors_speak_of_what_they_were_given(audit: RunAudit, step: RunStep) -> Problems:
    """A verdict is taken only from a witness that the seed gave the result to, never its maker."""
    if not step.effects or not isinstance(step.effects[0], m.WitnessAccepted):
        return
    before, said = step.before, {*step.event.passed, *step.event.failed}
    place = before.find(step.event.sender)
    given = {maker for maker, who in auditors(before, before.round).items() if place in who}
    if place in said or said - given:
        yield f"{short(step.event.sender)} audits {sorted(said)}, not {sorted(given)}"


def time_goes_forward(audit: RunAudit, step: RunStep) -> Problems:
    """Epoch and height never go back; steps only when the run says that it rewound."""
    before, after = step.before, step.after
    if after.turn < before.turn:
        yield f"from {before.turn} to {after.turn}"
    if after.progress.step < before.progress.step and not step.has(m.Rewound):
        yield f"from step {before.progress.step} to {after.progress.step}"
    if after.progress.step > before.progress.step + 1:
        yield f"from step {before.progress.step} to {after.progress.step} at once"


def every_sample_is_accounted_for(audit: RunAudit, step: RunStep) -> Problems:
    """Each sample below data_index is exactly one of learnt, owed and in flight."""
    if step.after.progress is step.before.progress and not step.moved:
        return
    progress, books = step.after.progress, audit.books
    parts = [books.learnt, reference.mask(progress.owed), *books.in_flight.values()]
    union = 0
    for part in parts:
        if union & part:
            yield f"samples {_samples(union & part)} are counted twice"
        union |= part
    everything = (1 << progress.data_index) - 1
    if union != everything:
        yield (
            f"samples {_samples(everything & ~union)} are lost, {_samples(union & ~everything)} "
            f"were never given out (learnt, owed, in flight: {list(map(_samples, parts))})"
        )


def tokens_are_exact(audit: RunAudit, step: RunStep) -> Problems:
    """tokens is the number of learnt samples times the length of a sequence."""
    if step.after.progress is step.before.progress:
        return
    expected = audit.books.learnt.bit_count() * step.after.run.model.max_seq_len
    if step.after.progress.tokens != expected:
        yield f"{step.after.progress.tokens} tokens are counted, {expected} were learnt"


def rounds_are_judged_by_their_witnesses(audit: RunAudit, step: RunStep) -> Problems:
    """What is learnt and who did not work follows from what a quorum of witnesses saw."""
    said = [e for e in step.effects if isinstance(e, m.RoundJudged)]
    verdict = audit.verdict if step.effects else None
    if verdict is None:
        if said:
            yield f"judged {said} for no reason"
        return
    counts = verdict.attested.bit_count(), verdict.owed.bit_count(), len(verdict.screened)
    expected = m.RoundJudged(verdict.height, *counts)
    if said != [expected]:
        yield f"said {said} instead of {expected}"
    judged = step.after.epoch.judged
    if judged is not None and set(judged.unhealthy) != verdict.unhealthy:
        yield f"{judged} instead of {sorted(verdict.unhealthy)}"


def witnesses_speak_for_themselves(audit: RunAudit, step: RunStep) -> Problems:
    """A proof counts once, from the elected client whose place in the roster it names."""
    if not step.effects or not isinstance(step.effects[0], m.WitnessAccepted):
        return
    sender, before = step.effects[0].id, step.before
    proof = step.event.proof
    at = [client.id for client in before.epoch.clients].index(sender)
    roster = [p for p in range(len(before.epoch.clients)) if p not in before.round.absent]
    if at not in roster or proof.index != roster.index(at):
        yield f"{short(sender)} spoke as index {proof.index}"
    if at not in witnesses(before, before.round):
        yield f"{short(sender)} is not a witness"
    if any(w.proof.index == proof.index for w in before.round.witnesses):
        yield f"{short(sender)} was counted twice"


def agreed_models_are_honest(audit: RunAudit, step: RunStep) -> Problems:
    """The hash that a quorum agreed on is the hash of the model that honest clients hold."""
    if not step.moved or step.before.phase is not S.RoundWitness:
        return
    height = step.before.round.height
    agreed = step.after.epoch.agreed_height == height or step.after.phase is S.Finished
    if agreed and not step.has(m.Rewound):
        honest = audit.canonical[step.before.epoch_number, height]
        if step.after.model_hash != honest.hash:
            yield f"{short(step.after.model_hash)} agreed, honest is {short(honest.hash)}"


def a_run_hands_on_what_it_counted(audit: RunAudit, step: RunStep) -> Problems:
    """When clients hand on the model, it has learnt exactly the samples that progress counts."""
    entered = step.after.phase in (S.Cooldown, S.Warmup, S.Finished)
    if not (step.moved and entered) or step.after.checkpoint.source is not CheckpointSource.P2P:
        return
    model = audit.models.get(step.after.model_hash)
    if model is None:
        yield f"the model {short(step.after.model_hash)} was never anyone's"
    elif model.samples != audit.books.applied:
        yield f"it learnt {_samples(model.samples)}, not {_samples(audit.books.applied)}"


def a_checkpoint_is_its_progress(audit: RunAudit, step: RunStep) -> Problems:
    """A stored model is there, is the agreed one, and has learnt what its progress counts."""
    if not step.has(m.CheckpointStored):
        return
    checkpoint = step.after.checkpoint
    model = audit.stored.get(checkpoint.location)
    if model is None or model.hash != checkpoint.model_hash:
        yield f"at {checkpoint.location} is {model and short(model.hash)}"
        return
    counted = audit.counted_in(checkpoint.progress)
    if model.samples & ~counted or counted & ~audit.books.lost & ~model.samples:
        yield f"{checkpoint.location} learnt {_samples(model.samples)}, not {_samples(counted)}"
    if step.after.epoch.checkpointed and checkpoint.progress != step.after.progress:
        yield f"{checkpoint.location} is of {checkpoint.progress}, not of {step.after.progress}"


def only_idle_clients_are_unhealthy(audit: RunAudit, step: RunStep) -> Problems:
    """Marked and removed for idleness is only whose work a quorum missed in the last verdict."""
    marks = step.after.epoch.leaving[len(step.before.epoch.leaving) :]
    for place, why in marks:
        if why is Left.Unhealthy and place not in audit.unhealthy:
            yield f"place {place} is marked, and no quorum missed its work"
    for effect in step.effects:
        if isinstance(effect, m.ClientRemoved) and effect.why is Left.Unhealthy:
            at = step.before.find(effect.id)
            # The accusation may itself come when the round is over, and close it.
            now = effect.id in getattr(step.event, "unhealthy", ()) and at in audit.blamed
            if not now and (at, Left.Unhealthy) not in step.before.epoch.leaving:
                yield f"{short(effect.id)} was removed without a mark"


def nobody_vanishes(audit: RunAudit, step: RunStep) -> Problems:
    """Who was in the epoch or waited for one still is, or was removed with a reason."""
    before, after = step.before, step.after
    if before.epoch.clients is after.epoch.clients and before.pending is after.pending:
        return
    removed = {e.id for e in step.effects if isinstance(e, m.ClientRemoved)}
    if gone := before.present - after.present - removed:
        yield f"{', '.join(map(short, sorted(gone)))} left without a reason"
    if removed & {c.id for c in after.epoch.clients if not c.left}:
        yield "a removed client is still a member"


def places_are_kept(audit: RunAudit, step: RunStep) -> Problems:
    """Within an epoch everyone keeps its place, so that proofs stay valid whoever leaves."""
    before, after = step.before.epoch.clients, step.after.epoch.clients
    if before is after or step.before.epoch_number != step.after.epoch_number or not before:
        return
    if [c.id for c in before] != [c.id for c in after]:
        yield f"{len(before)} places became {len(after)}"


def honest_models_are_equal(audit: RunAudit, fact: ModelLearnt) -> Problems:
    """Honest clients that applied the same rounds hold the same model, and learnt nothing twice."""
    expected = audit.canonical.get((fact.epoch, fact.height))
    found = (fact.model_hash, int(fact.samples, 16))
    if expected is None or found != expected:
        at = f"epoch {fact.epoch}, round {fact.height}"
        yield f"{short(fact.client)} holds {short(fact.model_hash)} at {at}, not {expected}"


def only_who_does_not_answer_is_called_gone(fact: CalledGone) -> Problems:
    """An honest client asked it and got no answer for a while, whatever others say of it."""
    if fact.waited < SHORTEST_SILENCE // 2:
        yield f"{short(fact.client)} calls {short(fact.peer)} gone after {fact.waited} ms"


def nobody_waits_longer_than_usual_rounds_take(fact: WaitedFor) -> Problems:
    """One that is there and does not deliver has three usual rounds and two seconds, no less and no
    more; what its maker does not give out is not waited for."""
    if fact.waited != fact.limit:
        yield f"{short(fact.client)} waited {fact.waited} ms, not {fact.limit}"


def _samples(mask: int) -> str:
    """A mask as spans, for people."""
    spans = []
    start = 0
    while mask >> start:
        start += ((mask >> start) & -(mask >> start)).bit_length() - 1
        run = mask >> start
        length = (~run & (run + 1)).bit_length() - 1
        spans.append(f"{start}..{start + length - 1}" if length > 1 else str(start))
        start += length
    return "{" + ", ".join(spans) + "}"


INVARIANTS: tuple[Invariant, ...] = (
    *OF_EVERY_MACHINE,
    a_phase_changes_once,
    clients_can_compute_with_it,
    phases_are_earned,
    time_goes_forward,
    places_are_kept,
    every_sample_is_accounted_for,
    tokens_are_exact,
    rounds_are_judged_by_their_witnesses,
    witnesses_speak_for_themselves,
    agreed_models_are_honest,
    a_run_hands_on_what_it_counted,
    a_checkpoint_is_its_progress,
    only_idle_clients_are_unhealthy,
    only_whom_a_quorum_cannot_reach_is_gone,
    only_who_spoke_twice_is_expelled,
    only_nonsense_is_screened,
    only_who_lied_fails_audits,
    auditors_speak_of_what_they_were_given,
    nobody_vanishes,
    newcomers_do_not_crowd_an_epoch,
    rounds_begin_with_those_who_are_ready,
    only_who_worked_is_proven,
)
NEED_THE_WORLD = frozenset(
    (
        "only_who_spoke_twice_is_expelled",
        "only_nonsense_is_screened",
        "only_who_lied_fails_audits",
        "honest_models_are_equal",
        "only_who_does_not_answer_is_called_gone",
        "nobody_waits_longer_than_usual_rounds_take",
        "agreed_models_are_honest",
        "a_run_hands_on_what_it_counted",
        "a_checkpoint_is_its_progress",
    )
)
