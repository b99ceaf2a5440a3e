"""A shorter transcript that fails in the same way."""

from folkmoot.core.machine import Refused
from folkmoot.simulate.audit import Fact, Input, Log
from folkmoot.simulate.transcript import Transcript

TRIES = 300


def shrink(whole: Transcript) -> Transcript:
    """Leave out what is not needed; nothing when it does not fail at all."""
    fed, found = whole.replay()
    if found is None:
        return Transcript(whole.audit_type, whole.config, fed, whole.title, whole.only)
    name = found.invariant
    log = [entry for entry in fed if not _said_nothing(entry)]
    if not _fails(whole, log, name):
        log = fed
    if name not in whole.audit_type.need_the_world:
        log = _without(whole, log, name)
    log, _ = _only(whole, log, name).replay()
    return Transcript(whole.audit_type, whole.config, log, f"{whole.title} (shortened)", name)


def _only(whole: Transcript, log: Log, name: str) -> Transcript:
    return Transcript(whole.audit_type, whole.config, log, only=name)


def _said_nothing(entry: Input | Fact) -> bool:
    return isinstance(entry, Input) and any(isinstance(e, Refused) for e in entry.effects)


def _fails(whole: Transcript, log: Log, name: str) -> bool:
    _, found = _only(whole, log, name).replay()
    return found is not None and found.invariant == name


def _without(whole: Transcript, log: Log, name: str) -> Log:
    """Try to leave out all facts, and then ever smaller pieces."""
    inputs: Log = [entry for entry in log if isinstance(entry, Input)]
    log = inputs if _fails(whole, inputs, name) else log
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
