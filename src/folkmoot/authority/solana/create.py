"""Put a run on chain, and what else only its owner and its join authority do."""

import msgspec
from solders.keypair import Keypair
from solders.pubkey import Pubkey

from folkmoot.authority import Denied
from folkmoot.authority.solana import answers, layout
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana.account import read, state_of
from folkmoot.authority.solana.layout import Tag
from folkmoot.authority.solana.place import Place
from folkmoot.authority.solana.rpc import Rpc
from folkmoot.authority.solana.sender import COMMITMENT, Sender
from folkmoot.authority.solana.subset import check, fitted
from folkmoot.core.coordinator import Run
from folkmoot.core.machine import Refused
from folkmoot.host.signing import Identity

GROW_AT_ONCE = 16  # instructions in one transaction
# A node says what the rent is; it is believed up to twice what it is at present.
RENT_MAX = 2 * 6960 * (128 + layout.RUN.itemsize)


class RunOwner:
    """What the key `identity` does to the run at `place`."""

    def __init__(self, place: Place, identity: Identity) -> None:
        self._rpc = Rpc(place.urls)
        self._place, self._program = place, place.program
        self.key = Keypair.from_seed(identity.private)
        self._sender = Sender(self._rpc, self.key, place.price, airdrop=place.loopback)
        self.address = say.coordinator_address(place.program, place.run_id)

    async def create(self, run: Run, open_: bool, points: int, join_authority: bytes) -> bool:
        """Whether it is new; False when the same run of ours was there.

        One whose creation was broken off is finished. Raises `ValueError` for another one.
        """
        run = fitted(run)
        check(run)
        size = len(await self.data())
        if size == layout.RUN.itemsize and await self._is_there(run):
            return False
        if size == 0:
            made = say.said(
                Tag.InitCoordinator,
                run.run_id.encode(),
                lamports=await self._rent(),
                open=int(open_),
                join_authority=join_authority,
            )
            await self._send(made, say.SYSTEM)
        await self._grow()
        for draft in say.drafts(run):
            await self._send(draft)
        await self._send(say.update(run, points))
        return True

    async def authorize(self, client: bytes) -> bool:
        """Whether it was not authorized before."""
        grant = say.grant_address(self._program, self.address, Pubkey(client))
        told = say.said(Tag.Authorize, grantee=client)
        return await self._send(told, grant, say.SYSTEM, unless="AlreadyThere")

    async def revoke(self, client: bytes) -> bool:
        """Whether it was authorized."""
        grant = say.grant_address(self._program, self.address, Pubkey(client))
        return await self._send(say.said(Tag.Revoke), grant, unless="NotGranted")

    async def tick(self) -> None:
        await self._send(say.said(Tag.Tick))

    async def close_run(self) -> None:
        await self._send(say.said(Tag.FreeCoordinator))

    async def data(self) -> bytes:
        """The account's bytes; none when there is no account."""
        since = self._rpc.since  # not what was before our last transaction
        options = {"encoding": "base64", "commitment": COMMITMENT, "minContextSlot": since}
        return await self._rpc.call(self._read, "getAccountInfo", str(self.address), options)

    def _read(self, told: msgspec.Raw) -> bytes:
        _, account = answers.read_account(told)
        if account is None or account.owner == str(say.SYSTEM):
            return b""  # anybody may send lamports to an address where nothing is yet
        return answers.account_bytes(account, self._program)

    async def _rent(self) -> int:
        def read_rent(told: msgspec.Raw) -> int:
            lamports = answers.read_number(told)
            if lamports > RENT_MAX:
                raise ValueError(f"{lamports} lamports of rent, and {RENT_MAX // 2} are usual")
            return lamports

        size = layout.RUN.itemsize
        return await self._rpc.call(read_rent, "getMinimumBalanceForRentExemption", size)

    async def _is_there(self, run: Run) -> bool:
        record = read(await self.data())
        if record["authority"].tobytes() != bytes(self.key.pubkey()):
            raise ValueError(
                f"there is a run '{run.run_id}' already, and it is another owner's:"
                " take another run_id"
            )
        if record["phase"] == 0:
            return False
        if state_of(record).run != run:
            raise ValueError(
                f"there is a run '{run.run_id}' already, with another configuration: use"
                " `folkmoot solana update`, or another run_id"
            )
        return True

    async def _grow(self) -> None:
        grow = say.instruction(self._program, say.said(Tag.Grow), self.key.pubkey(), self.address)
        for _ in layout.GROWN:
            steps = -(-(layout.RUN.itemsize - len(await self.data())) // layout.GROWTH)
            if steps <= 0:
                return
            _raise(await self._sender.send(*[grow] * min(GROW_AT_ONCE, steps)))
        raise Denied("the nodes say that the account grew, and show one that did not")

    async def _send(self, told: bytes, *more: Pubkey, unless: str = "") -> bool:
        """Whether it was taken; False when it was refused with `unless`."""
        made = say.instruction(self._program, told, self.key.pubkey(), self.address, *more)
        refused = await self._sender.send(made)
        if refused is not None and refused.code == unless:
            return False
        _raise(refused)
        return True


def _raise(refused: Refused | None) -> None:
    if refused is None:
        return
    # Every other instruction of ours names an account of the program, if it is there.
    raise Denied(answers.NO_RUN if refused.code == "WrongOwner" else refused.reason)
