"""A shorter transcript that fails in the same way."""

from __future__ import annotations

from folkmoot.core.coordinator import messages as m
from folkmoot.simulate.run.audit import AnyFact, Input, ModelLearnt
from folkmoot.simulate.transcript import Transcript, parse, replay_run

# These compare the machine with the world. With messages left out, the two would tell different
# stories, and the transcript would fail whether or not the machine is right.
_NEED_THE_WORLD = {
    "honest_models_are_equal",
    "agreed_models_are_honest",
    "a_run_hands_on_what_it_counted",
    "a_checkpoint_is_its_progress",
}
TRIES = 300
Log = list[Input | AnyFact]


def shrink(text: str) -> str:
    """Leave out what is not needed; gives the text back when it does not fail at all."""
    whole = parse(text)
    title = text.strip().splitlines()[0].lstrip("# ")
    found = replay_run(whole)
    if found is None:
        return text
    log = [entry for entry in found.log if not _said_nothing(entry)]
    if not _fails(whole, log, found.invariant):
        log = list(found.log)
    if found.invariant not in _NEED_THE_WORLD:
        log = _without(whole, log, found.invariant)
    again = replay_run(Transcript(whole.run, log, only=found.invariant))
    assert again is not None
    return str(Transcript(whole.run, again.log, f"{title} (shortened)", found.invariant))


def _said_nothing(entry: Input | AnyFact) -> bool:
    return isinstance(entry, Input) and any(isinstance(e, m.Refused) for e in entry.effects)


def _fails(whole: Transcript, log: Log, invariant: str) -> bool:
    found = replay_run(Transcript(whole.run, log, only=invariant))
    return found is not None and found.invariant == invariant


def _without(whole: Transcript, log: Log, name: str) -> Log:
    """Try to leave out ever smaller pieces."""
    fewer: Log = [entry for entry in log if not isinstance(entry, ModelLearnt)]
    log = fewer if _fails(whole, fewer, name) else log
    size, tries = len(log) // 2, 0
    while size and tries < TRIES:
        at = 0
        while at < len(log) and tries < TRIES:
            tries += 1
            shorter = log[:at] + log[at + size :]
            if _fails(whole, shorter, name):
                log = shorter
            else:
                at += size
        size //= 2
    return log
