"""The authority of a run on Solana, as its clients use it.

A message is a transaction that the client signs and pays; the program takes it or says why not. The
state is the account, followed by subscription; who has said something is shown nothing of before it
any more. Whoever is in the run ticks it when something is
due: after a random wait, that grows with the number of clients, so that one or two of them pay.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator
from typing import Any

from solders.keypair import Keypair
from solders.pubkey import Pubkey

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.shown import Shown
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana.account import AccountError, Record, slot_of, state_of
from folkmoot.authority.solana.follower import Follower
from folkmoot.authority.solana.place import parse_place
from folkmoot.authority.solana.rpc import Rpc, RpcRefused
from folkmoot.authority.solana.seeds import Chain, chain_of
from folkmoot.authority.solana.sender import Sender
from folkmoot.authority.solana.subset import fitted, misfits
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import Coordinator, Run, next_tick
from folkmoot.core.coordinator import messages as m
from folkmoot.host.clock import wall_clock
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks

SUBMIT_TIMEOUT = 60.0
SLOT_SECONDS = 0.4
LONGEST_SHARE = 4.0  # seconds that a tick may come late because everybody leaves it to others
TICK_AGAIN = 0.5
NOT_OURS = ("NotTheOwner", "NotTheJoinAuthority", "NotGranted", "WrongGrant", "NotConfigured")


class SolanaAuthority:
    """One client's part in the run at `place` (`<run_id>@<rpc-url>…`)."""

    def __init__(self, place: str, run_id: str, identity: Identity, price: int = 0) -> None:
        where = parse_place(place)
        if run_id != where.run_id:
            raise ValueError(f"the url names run '{where.run_id}', not '{run_id}'")
        self.place, self.run_id, self._identity = f"solana:{place}", run_id, identity
        self._program = where.program
        self._address = say.coordinator_address(where.program, run_id)
        self._rpc = Rpc(where.urls)
        self._me = Pubkey(identity.public)
        key = Keypair.from_seed(identity.private)
        self._sender = Sender(self._rpc, key, price, airdrop=where.loopback)
        self._shown = Shown(self.place)
        heard = (self._on_record, self._shown.tell)
        self._follower = Follower(self._rpc, self._address, where.program, *heard)
        self._tasks: list[asyncio.Task[None]] = []
        self._record: Record = None
        self.state: Coordinator | None = None
        """The newest one, whole."""
        self._chain: tuple[int, Chain] | None = None

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
        except RpcRefused as error:
            raise Unreachable(f"{self.place}: {error}") from None
        except TimeoutError:
            why = self._follower.last_error or "the transaction was not confirmed in time"
            raise Unreachable(f"{self.place}: {why}") from None
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
        self._rpc.close()

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

    def _on_record(self, record: Record) -> None:
        try:
            state = state_of(record)
        except AccountError as error:
            raise Denied(str(error)) from None
        self._record, self.state = record, state
        self._shown.show(state)
        self._shown.tell()

    async def _begun(self) -> None:
        self._start()
        while self.state is None:
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
        refused = await self._sender.send(made)
        await self._seen(self._sender.slot)
        return refused

    async def _seen(self, slot: int) -> None:
        """Until nothing of before this slot is shown any more."""
        self._follower.look_since(slot)
        while self._follower.slot < slot:
            await self._shown.wait()

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
        while True:
            news = self._shown.news
            due = None
            if self.state is not None and slot_of(self._record, self._identity.public) is not None:
                due = next_tick(self.state, wall_clock())
            # The chain's clock has whole seconds: a little later it is surely due.
            wait = None if due is None else max(due - wall_clock(), 0) / 1000 + self._share()
            try:
                async with asyncio.timeout(wait):
                    await news.wait()
            except TimeoutError:
                await self._tick_now()

    async def _tick_now(self) -> None:
        told = say.spoken(m.Tick(), self.state, 0, b"")  # type: ignore[arg-type]
        try:
            refused = await self._send(told)
        except (Unreachable, RpcRefused, Denied):
            refused = m.Refused("NothingDue", "")  # later, or somebody else
        if refused is not None:
            await asyncio.sleep(TICK_AGAIN * random.uniform(0.5, 1.0))

    def _share(self) -> float:
        """Seconds to leave the tick to others: about two of all clients come in one slot."""
        assert self.state is not None
        clients = self.state.active + len(self.state.pending)
        return random.uniform(0, min(SLOT_SECONDS * max(clients - 1, 0) / 2, LONGEST_SHARE))
