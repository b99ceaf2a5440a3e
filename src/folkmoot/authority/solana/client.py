"""The authority of a run on Solana, as its clients use it.

A message is a transaction that the client signs and pays; the program takes it or says why not. The
state is the account, followed by subscription; who has said something is shown nothing of before it
any more. Whoever is in the run ticks it when something is
due: after a random wait, that grows with the number of clients, so that few of them pay.
"""

import asyncio
import math
import random
import secrets
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from solders.keypair import Keypair
from solders.pubkey import Pubkey

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.shown import Shown
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana.account import Record, slot_of
from folkmoot.authority.solana.follower import Follower
from folkmoot.authority.solana.place import parse_place
from folkmoot.authority.solana.rpc import Rpc
from folkmoot.authority.solana.seeds import HashChain, chain_of
from folkmoot.authority.solana.sender import NOT_GRANTED, NOT_OURS, Sender
from folkmoot.authority.solana.subset import fitted, misfits
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import Coordinator, Run, next_tick
from folkmoot.core.coordinator import messages as m
from folkmoot.host.clock import backoff, wall_clock
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks

SUBMIT_TIMEOUT = 60.0
SLOT_SECONDS = 0.4
LONGEST_WAIT = 4.0  # seconds that a tick may come late because everybody leaves it to others
TICK_AGAIN = 0.5  # seconds to the second tick for the same; longer and longer to those after it


class _Turn(NamedTuple):
    """When to tick, all in milliseconds."""

    phase_start: int
    due: int
    at: int


class SolanaAuthority:
    """One client's part in the run at `place` (`<run_id>@<rpc-url>…`)."""

    def __init__(self, place: str, run_id: str, identity: Identity) -> None:
        where = parse_place(place)
        if run_id != where.run_id:
            raise ValueError(f"the url names run '{where.run_id}', not '{run_id}'")
        self.place, self.run_id, self._identity = where.shown, run_id, identity
        self._program = where.program
        self._address = say.coordinator_address(where.program, run_id)
        self._rpc = Rpc(where.urls)
        self._me = Pubkey(identity.public)
        key = Keypair.from_seed(identity.private)
        self._sender = Sender(self._rpc, key, where.price, airdrop=where.loopback)
        self._shown = Shown(self.place)
        heard = (self._on_news, self._shown.tell)
        self._follower = Follower(self._rpc, self._address, where.program, run_id, *heard)
        self._tasks: list[asyncio.Task[None]] = []
        self._record: Record = None
        self.state: Coordinator | None = None
        """The newest one, whole."""
        self._chain: tuple[int, HashChain] | None = None

    def watch(self) -> AsyncIterator[Coordinator]:
        self._start()
        return self._shown.watch()

    async def submit(self, message: m.AnyEvent) -> m.Refused | None:
        assert not isinstance(message, m.Tick), "ticks are sent when they are due"
        sender = getattr(message, "sender", self._identity.public)
        if sender != self._identity.public:
            raise Denied(f"{self.place}: the message names another sender than its signer")
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT):
                await self._begun()
                refused = await self._deliver(message)
        except TimeoutError:
            why = self._follower.last_error or "the transaction was not confirmed in time"
            raise Unreachable(f"{self.place}: {why}") from None
        if refused is not None and refused.code == NOT_GRANTED:
            raise Denied(
                f"{self.place}: {refused.reason}: ask its owner for"
                f" `folkmoot solana authorize {self.place} {self._me}`"
            )
        if refused is not None and refused.code in NOT_OURS:
            raise Denied(f"{self.place}: {refused.reason}")
        return refused

    @property
    def last_error(self) -> str:
        return self._follower.last_error

    def traffic(self) -> tuple[int, int]:
        return self._rpc.sent, self._rpc.received + self._follower.received

    async def close(self) -> None:
        await end_tasks(self._tasks)

    # Following.

    def _start(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._tick())]

    async def _follow(self) -> None:
        try:
            await self._follower.run()
        except Denied as error:
            self._shown.problem = error
            self._shown.tell()

    def _on_news(self, record: Record, state: Coordinator) -> None:
        self._record, self.state = record, state
        self._shown.show(state)
        self._shown.tell()

    async def _begun(self) -> None:
        self._start()
        while self.state is None:
            if self._follower.last_error:
                raise Unreachable(f"{self.place}: {self._follower.last_error}")
            await self._shown.wait()
        self._shown.check()

    # Sending.

    async def _deliver(self, message: Any) -> m.Refused | None:
        wrong = self._unsayable(message)
        if wrong is not None:
            return m.refusal(wrong)
        if isinstance(message, m.Update):
            return await self._update(fitted(message.run))
        assert self.state is not None
        salt, reveal = self._link(message)
        told = say.spoken(message, self.state, salt, reveal)
        more: tuple[Pubkey, ...] = ()
        if isinstance(message, m.Join) and not self._record["open"]:
            more = (say.grant_address(self._program, self._address, self._me),)
        return await self._send(told, *more)

    async def _send(self, told: bytes, *more: Pubkey) -> m.Refused | None:
        made = say.instruction(self._program, told, self._me, self._address, *more)
        try:
            refused = await self._sender.send(made)
        except (Unreachable, Denied) as error:
            raise type(error)(f"{self.place}: {error}") from None
        while self._follower.slot < self._rpc.since:  # nothing of before is shown any more
            self._follower.look_now()
            await self._shown.wait()
        return refused

    async def _update(self, run: Run) -> m.Refused | None:
        points = int(self._record["config"]["points_per_epoch"])
        for draft in say.drafts(run):
            refused = await self._send(draft)
            if refused is not None:
                return refused
        return await self._send(say.update(run, points))

    def _unsayable(self, message: Any) -> m.Reason | None:
        """What the program is not asked, because no instruction can say it."""
        match message:
            case m.Join():
                if message.run_id != self.run_id:
                    return m.Reason.WrongRun
                return None if len(message.model_hash) in (0, 32) else m.Reason.WrongHash
            case m.OpportunisticWitness():
                whole = len(message.broadcast_merkle) == len(message.model_hash) == 32
                if (
                    max(len(message.participant_bloom), len(message.broadcast_bloom))
                    > say.PIECE // 2
                ):
                    return m.Reason.WrongBloom
                return None if whole else m.Reason.WrongHash
            case m.OpportunisticCooldown():
                return None if len(message.location) <= say.PIECE else m.Reason.WrongLocation
            case m.Update(run):
                if run.run_id != self.run_id:
                    return m.Reason.WrongRun
                return (
                    m.Reason.BadConfig
                    if any(all_broken(run)) or any(misfits(fitted(run)))
                    else None
                )
        return None

    def _link(self, message: Any) -> tuple[int, bytes]:
        """(salt, link): what goes with a join, or with a proof."""
        if isinstance(message, m.Join):
            salt = secrets.randbits(63)
            self._chain = salt, chain_of(self._identity, self.run_id, salt)
            return salt, self._chain[1].end
        if not isinstance(message, m.OpportunisticWitness):
            return 0, b""
        slot = slot_of(self._record, self._identity.public)
        if slot is None:
            return 0, bytes(32)
        salt = int(slot["salt"])
        if self._chain is None or self._chain[0] != salt:
            self._chain = salt, chain_of(self._identity, self.run_id, salt)
        return 0, self._chain[1].reveal(slot["reveal"].tobytes()) or bytes(32)

    # Ticking.

    async def _tick(self) -> None:
        turn: _Turn | None = None
        waits = backoff(TICK_AGAIN)
        while True:
            news, now = self._shown.news, wall_clock()
            before, turn = turn, self._turn(now, turn)
            if turn != before:
                waits = backoff(TICK_AGAIN)
            try:
                async with asyncio.timeout(None if turn is None else max(turn.at - now, 0) / 1000):
                    await news.wait()
            except TimeoutError:
                taken = await self._tick_now()
                # A node that says so and shows no change would have us pay for tick after tick.
                if not taken or self._turn(wall_clock(), turn) == turn:
                    await asyncio.sleep(next(waits))

    def _turn(self, now: int, last: _Turn | None) -> _Turn | None:
        """Ours to tick; `last` if it is for the same. None when nothing will be due, or for us."""
        if self.state is None or slot_of(self._record, self._identity.public) is None:
            return None
        due = next_tick(self.state, now)
        if due is None:
            return None
        began = self.state.phase_start
        if last is None or last.phase_start != began:
            same = False
        else:  # what is due already is due `now`, whenever that is
            same = due == last.due or max(due, last.due) <= now
        if same:
            return last
        clients = self.state.active + len(self.state.pending)
        return _Turn(began, due, due + round(1000 * left_to_others(clients)))

    async def _tick_now(self) -> bool:
        """Whether it was taken; if not, later, or somebody else's will be."""
        told = say.spoken(m.Tick(), self.state, 0, b"")  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT):
                return await self._send(told) is None
        except (Unreachable, Denied, TimeoutError):
            return False


def left_to_others(clients: int) -> float:
    """Seconds for which one of so many clients leaves a tick to the others.

    Most wait nearly the longest, and the fewer the earlier (RFC 4654, 2.5.1): however many they
    are, two to four tick before they hear of the first one's.
    """
    if clients < 2:
        return 0.0
    longest = min(SLOT_SECONDS * (clients - 1) / 2, LONGEST_WAIT)
    drawn = 1.0 - random.random()
    return longest * max(1 + math.log(drawn) / math.log(clients), 0.0)
