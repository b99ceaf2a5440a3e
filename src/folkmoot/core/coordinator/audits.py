"""Which results of a round are audited, by whom and on which samples: computed by everyone.

Witnesses of round h audit results of round h - delay - 1. These were attested before the seed of
round h was known, so whoever trained them could not know whether it would be audited, nor on which
of its samples. Of as many results as there are witnesses `verification_percent` are drawn, under
the salt `audit`, and each is given to up to four witnesses other than its maker; all of them look
at the same samples, so that honest auditors come to the same verdict. A verdict counts when a
quorum of a result's auditors agree; `standing.py` says what follows from many.
"""

from hashlib import sha256
from typing import NamedTuple

from folkmoot.core.coordinator.assignment import Share, cut, merge, total
from folkmoot.core.coordinator.committee import FEW
from folkmoot.core.coordinator.state import Coordinator, Round
from folkmoot.core.quorum import witness_quorum
from folkmoot.core.shuffle import swap_or_not, swap_or_not_few

AUDIT_SALT = b"audit"
# Three of four is a quorum: three liars of ten hardly ever have it.
AUDITORS = 4
# With one auditor a verdict would be one client's word.
FEWEST_AUDITORS = 2
# An audit looks at one sample in so many of a share, and at no more than the second number.
ONE_IN, SAMPLES_MAX = 8, 8
Auditors = dict[int, tuple[int, ...]]


class AuditVerdicts(NamedTuple):
    """What the auditors of a round found, by the makers' places."""

    passed: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()
    alone: tuple[int, ...] = ()  # auditors that failed what a quorum of the others passed


def audited_round(state: Coordinator, by: Round) -> Round | None:
    """The round whose results the witnesses of `by` audit."""
    work = state.round_at(by.height - state.run.config.delay - 1)
    return work if work is not None and work.spans else None


def auditors(state: Coordinator, by: Round) -> Auditors:
    """Of every place whose result is audited by witnesses of `by`, the places of its auditors."""
    percent, work = state.run.config.verification_percent, audited_round(state, by)
    witnesses = state.elected(by)
    if not percent or work is None or witnesses <= FEWEST_AUDITORS:
        return {}
    seed = _salted(by)
    places = sorted(state.place(work, index) for index in state.assignment(work).busy().tolist())
    here = [place for place in places if state.index(by, place) is not None]
    if not here:  # everybody who worked then has left
        return {}
    # A part of a result is drawn as often as it is large.
    whole, part = divmod(min(len(here), witnesses) * percent, 100)
    count = whole + (int.from_bytes(seed[:4], "little") % 100 < part)
    drawn = [here[at] for at in _first(count, len(here), seed)]
    elected = [state.place(by, index) for index in state.committee(by).witness_indices()]
    return {place: _nearest(elected, place, seed) for place in sorted(drawn)}


def _nearest(elected: list[int], maker: int, seed: bytes) -> tuple[int, ...]:
    """The witnesses that the seed puts first for a maker's result."""
    root = seed + maker.to_bytes(4, "little")
    others = (place for place in elected if place != maker)
    order = sorted(others, key=lambda place: sha256(root + place.to_bytes(4, "little")).digest())
    return tuple(sorted(order[:AUDITORS]))


def _first(count: int, total: int, seed: bytes) -> list[int]:
    """The first of so many, in an order that the seed gives."""
    if total <= FEW:
        return list(swap_or_not_few(total, seed)[:count])
    return [swap_or_not(at, total, seed) for at in range(count)]


def duties(state: Coordinator, by: Round, place: int) -> tuple[int, ...]:
    """Whose results the client at a place audits as a witness of `by`."""
    return tuple(maker for maker, who in auditors(state, by).items() if place in who)


def audited_samples(by: Round, maker: int, share: Share) -> Share:
    """The samples of a share on which the result of the client at a place is audited."""
    size = total(share)
    count = min(-(-size // ONE_IN), SAMPLES_MAX)
    seed = sha256(_salted(by) + b"samples" + maker.to_bytes(4, "little")).digest()
    return merge([span for k in _first(count, size, seed) for span in cut(share, k, k + 1)])


def others(by: Round, maker: int, places: list[int]) -> tuple[int, ...]:
    """The makers of results that one of another is compared with, of those that were learnt."""
    rest = [place for place in places if place != maker]
    return _nearest(rest, maker, sha256(_salted(by) + b"others").digest())


def found(state: Coordinator, by: Round) -> AuditVerdicts:
    """What a quorum of the auditors of each result say, once a round has its witnesses."""
    said = {state.place(by, witness.proof.index): witness for witness in by.witnesses}
    if not any(witness.passed or witness.failed for witness in said.values()):
        return AuditVerdicts()
    passed, failed, alone = [], [], []
    for maker, who in auditors(state, by).items():
        against = [place for place in who if place in said and maker in said[place].failed]
        agree = sum(place in said and maker in said[place].passed for place in who)
        quorum = witness_quorum(len(who))
        if len(against) >= quorum:
            failed.append(maker)
        elif agree >= quorum:
            passed.append(maker)
            alone += against
    return AuditVerdicts(tuple(passed), tuple(failed), tuple(alone))


def _salted(by: Round) -> bytes:
    return sha256(sha256(by.seed.to_bytes(8, "little")).digest() + AUDIT_SALT).digest()
