"""A member that lies is refused in words; the run goes on and the honest models stay the same."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from folkmoot.client import events, models
from folkmoot.client.learner import Learner, Worked
from folkmoot.client.results import GET_RESULTS, Wanted, number
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.method_config import DistroConfig
from folkmoot.exchange.peer import wire
from folkmoot.exchange.peer.message import Content, seal
from folkmoot.exchange.peer.model import GET_MANIFEST
from support.small_run import (
    PATIENCE,
    QUICK,
    RunMember,
    SmallRun,
    agreement,
    all_learnt,
    small_run,
)

Told = Callable[[RunMember, Result, bytes], None]


def lies(tell: Told, then: bool = True) -> Callable[[RunMember], None]:
    """A member that does this, and then tells its true result after all."""

    def prepare(liar: RunMember) -> None:
        results = liar.member.results
        truly = results.tell

        def told(result: Result) -> int:
            tell(liar, result, results.payloads([result])[0])
            return truly(result) if then else 0

        results.tell = told

    return prepare


def publish(liar: RunMember, result: Any, body: bytes, round_: int | None = None) -> None:
    head = result if isinstance(result, bytes) else msgspec.msgpack.encode(result)
    client = liar.member.client
    at = number(client.epoch, client.shown.round.height) if round_ is None else round_
    liar.peer.publish(at, head, body)


def as_list(result: Result, **changes: Any) -> list[Any]:
    """A result with fields that its type does not allow."""
    return list({**msgspec.structs.asdict(result), **changes}.values())


def other_commitment(liar: RunMember, result: Result, payload: bytes) -> None:
    publish(liar, replace(result, commitment=os.urandom(32)), payload)


def anothers_batch(liar: RunMember, result: Result, payload: bytes) -> None:
    ledger = liar.member.client.ledgers[result.height]
    share = next(s for who, s in ledger.shares.items() if who != liar.id)
    publish(liar, replace(result, commitment=commitment_hash(ledger.step, share, payload)), payload)


def anothers_name(liar: RunMember, result: Result, payload: bytes) -> None:
    other = next(x.id for x in liar.small_run.state.epoch.clients if x.id != liar.id)
    publish(liar, replace(result, sender=other), payload)


def another_round(liar: RunMember, result: Result, payload: bytes) -> None:
    publish(liar, result, payload, number(result.epoch, result.height) + 7)


def other_bytes(liar: RunMember, result: Result, payload: bytes) -> None:
    publish(liar, replace(result, blob=os.urandom(32)), payload)


def oversized(liar: RunMember, result: Result, payload: bytes) -> None:
    body = bytes(liar.member.learner.method.payload_size + 1)
    publish(liar, replace(result, size=len(body), blob=liar.peer.put(body)), body)


def garbage(liar: RunMember, result: Result, payload: bytes) -> None:
    publish(liar, b"\xc1\x00garbage", payload)


def short_commitment(liar: RunMember, result: Result, payload: bytes) -> None:
    for size in (0, 5, 31, 33):
        publish(liar, msgspec.msgpack.encode(as_list(result, commitment=bytes(size))), payload)


def negative_size(liar: RunMember, result: Result, payload: bytes) -> None:
    publish(liar, msgspec.msgpack.encode(as_list(result, size=-1)), payload)


LIES: dict[str, tuple[Told, str]] = {
    "bytes that were not committed to": (other_commitment, "not what was committed to"),
    "another's batch": (anothers_batch, "not what was committed to"),
    "another's name": (anothers_name, "speaks for another client"),
    "another round": (another_round, "another round"),
    "other bytes than it names": (other_bytes, "names other bytes"),
    "oversized": (oversized, "no result has more than"),
    "garbage": (garbage, "not a result"),
    "commitments of no length": (short_commitment, "not a result"),
    "a negative size": (negative_size, "not a result"),
}


class Spoiling(Learner):
    """Spoils what it trained, then commits to that."""

    def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
        worked = super().train(step, share, stopped)
        return worked._replace(payload=self.spoil(bytearray(worked.payload)))

    def spoil(self, payload: bytearray) -> bytes:
        raise NotImplementedError


class WrongShapes(Spoiling):
    def spoil(self, payload: bytearray) -> bytes:
        payload[4] ^= 1  # the fingerprint of names, shapes, chunk and k
        return bytes(payload)


class NotANumber(Spoiling):
    def spoil(self, payload: bytearray) -> bytes:
        payload[-2:] = b"\xc0\x7f"
        return bytes(payload)


class TooShort(Spoiling):
    def spoil(self, payload: bytearray) -> bytes:
        return bytes(payload[:-1])


class Empty(Spoiling):
    def spoil(self, payload: bytearray) -> bytes:
        return b""


SPOILT: dict[type[Spoiling], str] = {
    WrongShapes: "fingerprint:",
    NotANumber: "amplitude:",
    TooShort: "truncated:",
    Empty: "truncated:",
}

CONFIG = {
    "total_steps": 3,
    "rounds_per_epoch": 8,
    "min_clients": 3,
    "init_min_clients": 4,
    "max_round_train_time": 2.0,
    # Else a witness that waits for a processor counts as silent.
    "round_witness_time": 20.0,
}


def refusals(members: Sequence[RunMember], sender: RunMember) -> list[list[str]]:
    """Why each member refused something of this sender."""
    told = [member.all(events.ResultRefused) for member in members]
    return [[e.reason for e in refused if e.sender == sender.name] for refused in told]


async def finish(run: SmallRun, honest: list[RunMember], liar: RunMember, reason: str) -> None:
    await run.until(run.finished)
    for said in refusals(honest, liar):
        assert any(reason in why for why in said), said
    for other in honest:
        assert not any(refusals(honest, other))
    assert run.state.progress.step == run.run.config.total_steps
    assert all_learnt(honest)


@pytest.mark.parametrize("lie", LIES)
async def test_a_result_that_is_a_lie_is_refused_by_everyone(tmp_path: Path, lie: str) -> None:
    tell, reason = LIES[lie]
    async with small_run(tmp_path, **CONFIG) as run:
        honest = await run.join(3)
        (liar,) = await run.join(prepare=lies(tell))
        await finish(run, honest, liar, reason)


@pytest.mark.parametrize("spoiling", SPOILT, ids=lambda kind: kind.__name__)
async def test_a_result_that_cannot_be_learnt_is_refused_by_everyone(
    tmp_path: Path, spoiling: type[Spoiling]
) -> None:
    async with small_run(tmp_path, method=DistroConfig(k=4, chunk=16, bits=16), **CONFIG) as run:
        honest = await run.join(3)
        (liar,) = await run.join(learner=spoiling)
        await finish(run, honest, liar, SPOILT[spoiling])


def withholds(liar: RunMember) -> None:
    """Tells of its result and gives it to nobody."""
    results = liar.member.results
    truly = results.tell

    def tell(result: Result) -> int:
        told = truly(result)
        liar.peer.drop(result.blob)
        return told

    results.tell = tell


async def test_nobody_waits_for_a_result_that_its_maker_does_not_give_out(tmp_path: Path) -> None:
    """The time of a round is longer than that of this test, and its first round says no pace."""
    config = {**CONFIG, "max_round_train_time": 10 * PATIENCE}
    async with small_run(tmp_path, replace(QUICK, inline_limit=0), **config) as run:
        honest = await run.join(3)
        (liar,) = await run.join(prepare=withholds)
        await finish(run, honest, liar, "does not give it out")
        judged = [(e.attested, e.owed) for e in run.all(m.RoundJudged)]
        assert judged[0] == (3, 1)
        assert {who for who, _ in run.removed()} == {liar.id}


def copies(liar: RunMember) -> None:
    """Publishes every commitment it hears of as its own too, with bytes that do not fit."""
    hears = liar.member.results._tell_machine

    def hear(event: c.Event) -> None:
        if isinstance(event, c.Offered):
            result, body = event.result, os.urandom(8)
            name = liar.peer.put(body, number(result.epoch, result.height))
            copy = replace(result, sender=liar.id, blob=name, size=len(body))
            publish(liar, copy, body, number(result.epoch, result.height))
        hears(event)

    liar.member.results._tell_machine = hear


def hears_pairs(who: RunMember) -> None:
    """Was asleep: when it hears of a commitment, its copy came right behind."""
    peer = who.peer
    hears = peer.receive

    def commitment(message: Any) -> bytes:
        return msgspec.msgpack.decode(message.head, type=Result).commitment

    copies_read: set[bytes] = set()  # a copy may come first, by another way

    def copied(message: Any) -> bool:
        waiting = {commitment(other) for other in peer._inbox if other.origin not in honest_ids}
        return commitment(message) in waiting | copies_read

    async def receive() -> Any:
        message = await hears()
        if message.origin not in honest_ids:
            copies_read.add(commitment(message))
            return message
        while not copied(message):
            peer._arrived.clear()
            await peer._arrived.wait()
        return message

    honest_ids = {a.id for a in who.small_run.members[:3]}
    peer.receive = receive


async def test_a_client_cannot_push_out_anothers_result_by_copying_it(tmp_path: Path) -> None:
    # One round: whoever tells of several results is expelled after it.
    config = {**CONFIG, "total_steps": 1, "max_round_train_time": 20}
    async with small_run(tmp_path, **config) as run:
        honest = await run.join(3, prepare=hears_pairs)
        (liar,) = await run.join(prepare=copies)
        await finish(run, honest, liar, "not what was committed to")
        # Its own true result may be heard before it is known to tell of several.
        assert [(e.attested, e.owed) for e in run.all(m.RoundJudged)] in ([(3, 1)], [(4, 0)])


def another(learner: Learner, payload: bytes) -> bytes:
    """A payload that differs in one bit and can be learnt as well."""
    for at in reversed(range(len(payload))):
        changed = payload[:at] + bytes([payload[at] ^ 1]) + payload[at + 1 :]
        if learner.method.check(changed) is None:
            return changed
    raise AssertionError("no bit of the payload is free")


async def test_two_different_results_for_one_batch_leave_one_model(tmp_path: Path) -> None:
    """Each peer hears another one first; both are sound, and go round."""

    def equivocate(liar: RunMember, result: Result, payload: bytes) -> None:
        ledger = liar.member.client.ledgers[result.height]
        step, share = ledger.step, ledger.shares[liar.id]
        messages = []
        for body in (payload, another(liar.member.learner, payload)):
            name = liar.peer.put(body, number(result.epoch, result.height))
            told = replace(result, commitment=commitment_hash(step, share, body), blob=name)
            head = msgspec.msgpack.encode(told)
            content = Content(liar.id, number(result.epoch, result.height), head, body)
            messages.append(seal(content, liar.peer._topic, liar.peer._secret).sealed)
        # Both at once to each: heard of after the round is judged, the second would prove nothing;
        # the liar would have left for a share that nobody attests.
        for turn, peer in enumerate(sorted(liar.peer.neighbours())):
            for sealed in messages if turn % 2 else reversed(messages):
                liar.peer._roster.link(peer).send(wire.encode(wire.Gossip(sealed)))

    # Nobody waits for the liar: the time of a round is for a busy machine.
    config = {**CONFIG, "total_steps": 6, "max_round_train_time": 20}
    async with small_run(tmp_path, **config) as run:
        honest = await run.join(3)
        (liar,) = await run.join(prepare=lies(equivocate, then=False))
        heard: set[tuple[int, bytes]] = set()
        run.on_event = lambda who, event: heard.update(
            (height, commitment)
            for height, ledger in who.member.client.ledgers.items()
            for commitment in ledger.offers.get(liar.id, {})
            if commitment in ledger.sound
        )
        await run.until(run.finished)
        rounds = [height for height, _ in heard]
        assert max(rounds.count(height) for height in rounds) == 2
        assert all_learnt(honest)
        assert run.removed() == [(liar.id, "Equivocated")]
        assert run.state.expelled == (liar.id,)
        assert [e.id for e in run.all(m.ClientJoined)].count(liar.id) == 1


def deaf(who: RunMember) -> None:
    """Hears nothing that its peers publish: it must ask for everything."""

    async def listen() -> None:
        while True:
            await who.peer.receive()

    who.member.results.listen = listen


def forges(liar: RunMember) -> None:
    """Answers those who missed results with sound ones of its own making, then with the true."""

    truly = liar.member.results._answer

    async def answer(asker: bytes, wanted: Wanted) -> tuple[Result, ...]:
        ledger, made = liar.member.client.ledgers[wanted.height], []
        for sender in wanted.senders:
            true = await truly(asker, replace(wanted, senders=(sender,)))
            step, share = ledger.step, ledger.shares[sender]
            body = another(liar.member.learner, liar.member.results.payloads(true)[0])
            name = liar.peer.put(body, number(wanted.epoch, wanted.height))
            commitment = commitment_hash(step, share, body)
            made += [replace(true[0], commitment=commitment, blob=name), *true]
        return tuple(made)

    liar.peer.answer(GET_RESULTS, answer)


async def test_what_was_missed_is_asked_for_and_no_forgery_is_taken(tmp_path: Path) -> None:
    """Three forge, and train no round before the one who hears nothing does."""
    begun = threading.Semaphore(0)

    class Ahead(Learner):
        def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
            begun.release(3)
            return super().train(step, share, stopped)

    class Behind(Learner):
        def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
            assert begun.acquire(timeout=PATIENCE)
            return super().train(step, share, stopped)

    config = {"total_steps": 4, "rounds_per_epoch": 8, "min_clients": 4}
    async with small_run(tmp_path, **config) as run:
        others = await run.join(3, prepare=forges, learner=Behind)
        (missing,) = await run.join(prepare=deaf, learner=Ahead)
        await run.until(run.finished)
        assert missing.all(events.ResultMissing)
        assert all_learnt([*others, missing])


# Models.


def gives_wrong_parameters(liar: RunMember) -> None:
    """Promises the agreed leaves and gives other bytes for them."""
    share = liar.member.models.share

    async def share_wrongly(model_hash: bytes) -> None:
        await share(model_hash)
        shared = liar.member.models._shared
        first, *others = shared.manifest.parameters
        size = liar.member.learner.part_sizes()[first.name]
        wrong = replace(first, content=liar.peer.put(bytes(size)))
        shared.manifest = replace(shared.manifest, parameters=(wrong, *others))

    liar.member.models.share = share_wrongly


def never_answers(liar: RunMember) -> None:
    async def share(model_hash: bytes) -> None:
        liar.peer.answer(GET_MANIFEST, hang)

    async def hang(asker: bytes, model: bytes) -> Any:
        await asyncio.Event().wait()

    liar.member.models.share = share


def holds_nothing(liar: RunMember) -> None:
    async def share(model_hash: bytes) -> None:
        pass

    liar.member.models.share = share


@pytest.mark.parametrize("lie", [gives_wrong_parameters, never_answers, holds_nothing])
async def test_a_joiner_gets_the_right_model_whatever_others_serve(
    tmp_path: Path, lie: Callable[[RunMember], None]
) -> None:
    async with small_run(tmp_path, total_steps=4, min_clients=3) as run:
        (honest,) = await run.join()
        liars = await run.join(2, prepare=lie)
        await run.until(run.in_round(0))
        (late,) = await run.join()
        await run.until(run.finished)
        assert late.sources() == ["peers"]
        assert agreement([honest, *liars, late])


async def test_one_who_claims_to_hold_the_model_cannot_keep_a_run_from_going_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All who hold the model are gone. The claim is public knowledge; storage has the model."""
    monkeypatch.setattr(models, "PATIENCE", 0.5)

    def claims(liar: RunMember) -> None:
        submit = liar.authority.submit

        async def claim(message: m.AnyEvent) -> m.Refused | None:
            if isinstance(message, m.Join):
                message = replace(message, model_hash=run.state.model_hash)
            return await submit(message)

        liar.authority.submit = claim

    kept = str(tmp_path / "kept")
    async with small_run(tmp_path, total_steps=6, checkpoint=kept, min_clients=2) as run:
        first = await run.join(2)
        await run.until(lambda: run.state.epoch_number == 1)
        for member in first:
            await member.leave()
        done = run.state.progress.step
        await run.join(prepare=claims)
        (honest,) = await run.join()
        await run.until(run.finished)
        # The liar may load the stored model first, and then hand it on like anybody else.
        assert honest.sources()[0] in ("storage", "peers")
        assert not run.all(m.Rewound)
        assert 0 < done < 6
        assert agreement(run.members)
