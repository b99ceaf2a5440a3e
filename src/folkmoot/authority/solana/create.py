"""Put a run on chain, and what else only its owner and its join authority do."""

import base64

from solders.keypair import Keypair
from solders.pubkey import Pubkey

from folkmoot.authority import Denied
from folkmoot.authority.solana import instructions as say
from folkmoot.authority.solana import layout
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


class Owner:
    """What the key `identity` does to the run at `place`."""

    def __init__(self, place: Place, identity: Identity, price: int = 0) -> None:
        self._rpc = Rpc(place.urls)
        self._place, self._program = place, place.program
        self.key = Keypair.from_seed(identity.private)
        self._sender = Sender(self._rpc, self.key, price, airdrop=place.loopback)
        self.address = say.coordinator_address(place.program, place.run_id)

    async def create(self, run: Run, open_: bool, points: int, join_authority: bytes) -> bool:
        """Whether it is new; False when the same run of ours was there.

        One whose creation was broken off is finished. Raises `ValueError` for another one.
        """
        run = fitted(run)
        check(run)
        size = await self._size()
        if size == layout.RUN.itemsize and await self._is_there(run):
            return False
        if size == 0:
            rent = await self._rpc.call("getMinimumBalanceForRentExemption", layout.RUN.itemsize)
            fields = {"lamports": rent, "open": int(open_), "join_authority": join_authority}
            made = say.said(Tag.InitCoordinator, run.run_id.encode(), **fields)
            await self._send(made, say.SYSTEM)
        await self._grow()
        for draft in say.drafts(run):
            await self._send(draft)
        await self._send(say.update(run, points))
        return True

    async def authorize(self, client: bytes) -> None:
        grant = say.grant_address(self._program, self.address, Pubkey(client))
        await self._send(say.said(Tag.Authorize, grantee=client), grant, say.SYSTEM)

    async def revoke(self, client: bytes) -> None:
        grant = say.grant_address(self._program, self.address, Pubkey(client))
        await self._send(say.said(Tag.Revoke), grant)

    async def tick(self) -> None:
        await self._send(say.said(Tag.Tick))

    async def close_run(self) -> None:
        await self._send(say.said(Tag.FreeCoordinator))

    async def data(self) -> bytes:
        """The account's bytes; none when there is no account."""
        since = self._sender.slot  # not what was before our last transaction
        options = {"encoding": "base64", "commitment": COMMITMENT, "minContextSlot": since}
        value = (await self._rpc.call("getAccountInfo", str(self.address), options))["value"]
        return base64.b64decode(value["data"][0]) if value else b""

    def close(self) -> None:
        self._rpc.close()

    async def _size(self) -> int:
        return len(await self.data())

    async def _is_there(self, run: Run) -> bool:
        record = read(await self.data())
        if record["phase"] == 0 and record["authority"].tobytes() == bytes(self.key.pubkey()):
            return False
        if state_of(record).run != run:
            raise ValueError(
                f"there is a run '{run.run_id}' already, with another configuration: use"
                " `folkmoot solana update`, or another run_id"
            )
        return True

    async def _grow(self) -> None:
        grow = say.instruction(self._program, say.said(Tag.Grow), self.key.pubkey(), self.address)
        while (size := await self._size()) < layout.RUN.itemsize:
            steps = -(-(layout.RUN.itemsize - size) // layout.GROWTH)
            _raise(await self._sender.send(*[grow] * min(GROW_AT_ONCE, steps)))

    async def _send(self, told: bytes, *more: Pubkey) -> None:
        made = say.instruction(self._program, told, self.key.pubkey(), self.address, *more)
        _raise(await self._sender.send(made))


def _raise(refused: Refused | None) -> None:
    if refused is not None:
        raise Denied(refused.reason)
