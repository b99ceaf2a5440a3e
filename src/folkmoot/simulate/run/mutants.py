"""The machine of a run, broken on purpose."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from folkmoot.core.coordinator import (
    absence,
    audits,
    health,
    machine,
    newcomers,
    phases,
    receive,
    state,
)
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import alignment, screening, waiting
from folkmoot.core.coordinator.client.ledger import Ledger
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.coordinator.state import Coordinator, Left, Phase
from folkmoot.simulate.mutants import Mutants

_remove, _tick, _rewind = receive.remove, phases.tick, phases._rewind
_enter_train, _close_round = phases.ENTER[Phase.RoundTrain], phases.CLOSE[Phase.RoundWitness]
_wrong_place, _cooldown = receive._wrong_place, receive.opportunistic_cooldown


def _advance_in_drain(state: Coordinator, now: int, seed: int) -> Any:
    """Draining rounds use up data that nobody trains."""
    entered, effects = _enter_train(state, now, seed)
    if not entered.round.spans:
        progress = replace(entered.progress, data_index=entered.progress.data_index + 1)
        entered = replace(entered, progress=progress)
    return entered, effects


def _compact(state: Coordinator, leaving: Any) -> Any:
    """Those who leave are taken out of the list, and everyone behind them moves up."""
    after, effects = _remove(state, leaving)
    if after is state:
        return state, effects
    kept = tuple(client for client in after.epoch.clients if not client.left)
    return replace(after, epoch=replace(after.epoch, clients=kept, absent=())), effects


def _believe_accusations(state: Coordinator, identities: Any) -> Any:
    return tuple((place, Left.Unhealthy) for place in state.places(identities))


def _believe_one(state: Coordinator, election: Any) -> Any:
    called = {place for _, places in state.epoch.called_gone for place in places}
    leaving = {place for place, _ in state.epoch.leaving}
    here = (p for p in sorted(called - leaving) if not state.epoch.clients[p].left)
    return [(place, Left.Gone) for place in here]


def _first_reporter(state: Coordinator, by: Any) -> bytes | None:
    return by.witnesses[0].model_hash if by.witnesses else None


def _any_index(state: Coordinator, message: Any, place: int) -> Any:
    reason = _wrong_place(state, message, place)
    return None if reason is m.Reason.WrongIndex else reason


def _count_twice(state: Coordinator, message: Any, place: int) -> Any:
    reason = _wrong_place(state, message, place)
    return None if reason is m.Reason.Duplicate else reason


def _any_checkpoint(state: Coordinator, message: Any, now: int) -> Any:
    """A checkpoint counts whatever model it holds."""
    return _cooldown(state, replace(message, model_hash=state.model_hash), now)


def _quietly(state: Coordinator, message: m.Tick, now: int) -> Any:
    """The silent are dropped and nobody is told."""
    after, effects = _tick(state, message, now)
    return after, tuple(e for e in effects if not isinstance(e, m.ClientRemoved))


def _keep_progress(state: Coordinator) -> Any:
    """Back to the stored model, with the progress of the lost one."""
    after, effects = _rewind(state)
    return replace(after, progress=state.progress), effects


def _one_is_enough(state: Coordinator, by: Any, work: Any) -> Any:
    """A result counts as learnt when a single witness saw it."""
    judgement = health.judge(state, by, work)
    rows = [(state.place(work, i), share) for i, share in state.assignment(work).shares()]
    ids = [state.epoch.clients[place].id for place, _ in rows]
    scores = health.trainer_healthy_score_by_witnesses(ids, state, by).tolist()
    owed = tuple(s for (_, share), n in zip(rows, scores, strict=True) if n < 1 for s in share)
    return judgement._replace(owed=owed)


def _one_may_screen(state: Coordinator, by: Any, work: Any) -> Any:
    """A client gets marks when a single witness screens its result."""
    judgement = health.judge(state, by, work)
    named = sorted({place for witness in by.witnesses for place in witness.screened})
    return judgement._replace(screened=tuple(named))


def _short_at_once(short: float, asked: float, relative: float) -> float:
    """Who was a little less aligned than usual once is screened."""
    return alignment.TOO_SHORT if relative < 1 else short


def _none_for_who_hung_up(client: ClientState, name: bytes) -> int:
    return 0 if name in client.hung_up else waiting.silence(client)


def _agreed_early(state: Coordinator) -> bool:
    return state.epoch.agreed_height == state.round.height


MUTANTS: Mutants = {
    "a quorum of one": ((state, "witness_quorum", lambda witnesses: 1),),
    "the drain is forgotten": (
        (machine, "drained", lambda state: state.epoch.last_height is not None),
        (machine, "agreed", _agreed_early),
        (phases, "agreed", _agreed_early),
    ),
    "draining rounds use up data": ((phases.ENTER, Phase.RoundTrain, _advance_in_drain),),
    "owed samples are dropped": ((phases, "merge", lambda spans: ()),),
    "a result is learnt when one witness saw it": ((phases, "judge", _one_is_enough),),
    "one witness has results screened": ((phases, "judge", _one_may_screen),),
    "a result a little below the usual is screened": (
        (screening, "add_shortfall", _short_at_once),
    ),
    "one auditor has results failed": ((audits, "witness_quorum", lambda auditors: 1),),
    "witnesses audit what they like": ((receive, "_is_given", lambda *said: True),),
    "anyone may speak for an elected witness": ((receive, "_wrong_place", _any_index),),
    "a proof sent twice counts twice": ((receive, "_wrong_place", _count_twice),),
    "removal moves the others up": (
        (phases, "remove", _compact),
        (receive, "remove", _compact),
    ),
    "accusations are believed": ((receive, "_accused", _believe_accusations),),
    "one witness has others called gone": ((absence, "gone", _believe_one),),
    "the slowest round is usual": ((waiting, "_usual", lambda client: max(client.paces)),),
    "what cannot be had is waited for": ((Ledger, "cannot_be_had", lambda ledger, result: None),),
    "who hung up is gone": ((waiting, "patience", _none_for_who_hung_up),),
    "the first reporter's model is the truth": ((phases, "agreed_model", _first_reporter),),
    "any model is a checkpoint": ((machine._RECEIVE, m.OpportunisticCooldown, _any_checkpoint),),
    "the silent are dropped quietly": ((machine._RECEIVE, m.Tick, _quietly),),
    "a rewind keeps the progress": ((phases, "_rewind", _keep_progress),),
    "a checkpoint counts what is still on its way": (
        (phases, "held_progress", lambda state: state.progress),
    ),
    "newcomers may be as many as they like": (
        (newcomers, "_places_beside", lambda state, proven: state.run.config.max_clients),
    ),
    "the rounds begin with all": ((newcomers, "unready", lambda state: []),),
    "a model is handed on before it is drained": (
        (phases, "agreed", _agreed_early),
        (machine, "agreed", _agreed_early),
    ),
}
