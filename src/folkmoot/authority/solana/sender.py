"""A transaction from its making to its end: sent, sent again, confirmed, or expired and made anew.

The same bytes may be sent any number of times: a cluster runs them once. Only when a blockhash has
expired, and nothing became of the transaction, is another one made. A node may keep to itself what
it is given: what is not heard of is sent again through another one. Nor does it end a client: what
it refuses for good is heard from the others too.
"""

import asyncio
import base64
from typing import Any

from solders.instruction import Instruction
from solders.keypair import Keypair

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana import answers
from folkmoot.authority.solana.rpc import Rpc, TransactionRefused
from folkmoot.authority.solana.transactions import COMPUTE_UNITS, custom_error, is_poor, signed
from folkmoot.core.machine import Refused
from folkmoot.host.plain_text import plain_text

LOOK_SECONDS = 0.25
SEND_AGAIN_SECONDS = 2.0
# A blockhash is valid for about a minute.
TRIES = 3
GIVE_UP_SECONDS = 240.0
AIRDROP = 10 * 10**9
DONE = ("confirmed", "finalized")
EXPIRED = "expired"
# Of what is sent again: it ran, or a node does not know its blockhash, which another one may.
UNDER_WAY = ("AlreadyProcessed", "BlockhashNotFound")
COMMITMENT = "confirmed"
# With these a client ends, and so it does when it cannot pay: one node's word is not enough.
NOT_GRANTED = "NotGranted"
NOT_OURS = ("NotTheOwner", "NotTheJoinAuthority", "WrongGrant", "NotConfigured")


class Sender:
    """Sends as one key, which pays. On a network of this machine a poor one is given lamports."""

    def __init__(self, rpc: Rpc, key: Keypair, price: int = 0, airdrop: bool = False) -> None:
        self._rpc, self.key, self._price, self._airdrop = rpc, key, price, airdrop

    async def send(self, *instructions: Instruction, units: int = COMPUTE_UNITS) -> Refused | None:
        """None once they are confirmed, else why the program refused them."""
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                return await self._send(instructions, units)
        except TimeoutError:
            raise Unreachable("nothing was heard of the transaction: do the nodes work?") from None

    async def _send(self, instructions: tuple[Instruction, ...], units: int) -> Refused | None:
        tries, refusing = TRIES, set[str]()
        while tries > 0:
            try:
                status = await self._run(instructions, units)
            except TransactionRefused as refused:
                error, message = refused.error, str(refused)
            else:
                error, message = status.err if status else EXPIRED, ""
            if error is None:
                return None
            node = self._rpc.url
            if error in (EXPIRED, "BlockhashNotFound"):
                tries -= 1
            elif is_poor(error) and await self._get_lamports():
                tries -= 1
                continue
            elif not _is_final(error) or not self._others_unheard(refusing, node):
                return self._refused(error, message)
            self._rpc.pass_over(node)
        raise Unreachable("the transaction expired again and again: is the cluster very busy?")

    def _others_unheard(self, refusing: set[str], node: str) -> bool:
        """Whether there are nodes that did not refuse for good yet, as `node` just did."""
        again = node in refusing  # it was asked again because no other one answers
        refusing.add(node)
        return not again and len(refusing) < len(self._rpc.urls)

    async def _run(
        self, instructions: tuple[Instruction, ...], units: int
    ) -> answers.Status | None:
        """What became of one transaction; None when it expired."""
        newest = await self._blockhash()
        made = signed(instructions, self.key, newest.hash, units, self._price)
        wire = base64.b64encode(bytes(made)).decode()
        await self._hand_over(wire)
        signature = str(made.signatures[0])
        status = await self._confirmed(signature, wire, newest.lastValidBlockHeight)
        if status is not None:
            self._rpc.since = max(self._rpc.since, status.slot)
        return status

    async def _blockhash(self) -> answers.Blockhash:
        options = {"commitment": COMMITMENT}
        return await self._rpc.call(answers.read_blockhash, "getLatestBlockhash", options)

    async def _hand_over(self, wire: str) -> None:
        """Have it simulated and passed on."""
        options: dict[str, Any] = {"encoding": "base64", "preflightCommitment": COMMITMENT}
        options |= {"maxRetries": 0, "minContextSlot": self._rpc.since}
        await self._rpc.call(bytes, "sendTransaction", wire, options)

    async def _confirmed(self, signature: str, wire: str, last: int) -> answers.Status | None:
        """Its status once it counts; None when it expired."""
        waited = 0.0
        while True:
            status = await self._rpc.call(answers.read_status, "getSignatureStatuses", [signature])
            if status is not None and status.confirmationStatus in DONE:
                return status
            if status is None and waited > 0 and await self._height() > last:
                return None
            await asyncio.sleep(LOOK_SECONDS)
            before, waited = waited, waited + LOOK_SECONDS
            if status is None and waited // SEND_AGAIN_SECONDS > before // SEND_AGAIN_SECONDS:
                self._rpc.pass_over(self._rpc.url)
                await self._send_again(wire)

    async def _send_again(self, wire: str) -> None:
        try:
            await self._hand_over(wire)
        except TransactionRefused as refused:
            if refused.error not in UNDER_WAY:
                raise

    async def _height(self) -> int:
        return await self._rpc.call(
            answers.read_number, "getBlockHeight", {"commitment": COMMITMENT}
        )

    def _refused(self, error: Any, message: str) -> Refused:
        if is_poor(error):
            raise Denied(
                f"the account {self.key.pubkey()} cannot pay for its transactions: send it some"
                " lamports (a client needs about 0.01 SOL a thousand rounds, and who creates a run"
                " 2.3 SOL, most of which come back when it is closed)"
            )
        named = custom_error(error)
        if named is None:
            why = plain_text(str(error or message))
            raise Unreachable(f"the cluster does not run the transaction: {why}")
        return Refused(*named)

    async def _get_lamports(self) -> bool:
        """Whether it was given any."""
        if not self._airdrop:
            return False
        address = str(self.key.pubkey())
        await self._rpc.call(bytes, "requestAirdrop", address, AIRDROP)
        return True


def _is_final(error: Any) -> bool:
    named = custom_error(error)
    return is_poor(error) or (named is not None and named[0] in (NOT_GRANTED, *NOT_OURS))
