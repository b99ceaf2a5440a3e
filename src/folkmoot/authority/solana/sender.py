"""A transaction from its making to its end: sent, sent again, confirmed, or expired and made anew.

The same bytes may be sent any number of times: a cluster runs them once. Only when a blockhash has
expired, and nothing became of the transaction, is another one made.
"""

import asyncio
import base64
from typing import Any

from solders.hash import Hash
from solders.instruction import Instruction
from solders.keypair import Keypair

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana.rpc import Rpc, RpcRefused
from folkmoot.authority.solana.transactions import COMPUTE_UNITS, custom_error, signed
from folkmoot.core.machine import Refused

LOOK_SECONDS = 0.25
SEND_AGAIN_SECONDS = 2.0
TRIES = 3
AIRDROP = 10 * 10**9
POOR = ("AccountNotFound", "InsufficientFundsForFee", "InsufficientFundsForRent")
DONE = ("confirmed", "finalized")
COMMITMENT = "confirmed"


class Sender:
    """Sends as one key, which pays. On a network of this machine a poor one is given lamports."""

    def __init__(self, rpc: Rpc, key: Keypair, price: int = 0, airdrop: bool = False) -> None:
        self._rpc, self.key, self._price, self._airdrop = rpc, key, price, airdrop
        self.slot = 0
        """In which the newest of our transactions was confirmed."""

    async def send(self, *instructions: Instruction, units: int = COMPUTE_UNITS) -> Refused | None:
        """None once they are confirmed, else why the program refused them."""
        for _ in range(TRIES):
            blockhash, last = await self._blockhash()
            made = signed(instructions, self.key, blockhash, units, self._price)
            wire = base64.b64encode(bytes(made)).decode()
            try:
                await self._send(wire)
            except RpcRefused as error:
                told = error.transaction_error
                if told == "BlockhashNotFound" or (told in POOR and await self._get_lamports()):
                    continue
                return self._refused(told, str(error))
            status = await self._confirmed(str(made.signatures[0]), wire, last)
            if status is not None:
                self.slot = max(self.slot, int(status["slot"]))
                return None if status["err"] is None else self._refused(status["err"], "")
        raise Unreachable("the transaction expired again and again: is the cluster very busy?")

    async def _blockhash(self) -> tuple[Hash, int]:
        options = {"commitment": COMMITMENT}
        value = (await self._rpc.call("getLatestBlockhash", options))["value"]
        return Hash.from_string(value["blockhash"]), int(value["lastValidBlockHeight"])

    async def _send(self, wire: str, again: bool = False) -> None:
        options = {"encoding": "base64", "skipPreflight": again, "maxRetries": 0}
        options |= {"preflightCommitment": COMMITMENT, "minContextSlot": self.slot}
        await self._rpc.call("sendTransaction", wire, options)

    async def _confirmed(self, signature: str, wire: str, last: int) -> Any:
        """Its status once it counts; None when it expired."""
        waited = 0.0
        while True:
            value = (await self._rpc.call("getSignatureStatuses", [signature]))["value"][0]
            if value is not None and value["confirmationStatus"] in DONE:
                return value
            if value is None and waited > 0:
                height = await self._rpc.call("getBlockHeight", {"commitment": COMMITMENT})
                if height > last:
                    return None
            await asyncio.sleep(LOOK_SECONDS)
            before, waited = waited, waited + LOOK_SECONDS
            if value is None and waited // SEND_AGAIN_SECONDS > before // SEND_AGAIN_SECONDS:
                await self._send(wire, again=True)

    def _refused(self, error: Any, message: str) -> Refused:
        if error in POOR:
            raise Denied(
                f"the account {self.key.pubkey()} cannot pay for its transactions:"
                " send it some lamports (a client needs about 0.01 SOL a thousand rounds)"
            )
        named = custom_error(error)
        if named is None:
            raise Unreachable(f"the cluster does not run the transaction: {error or message}")
        return Refused(*named)

    async def _get_lamports(self) -> bool:
        """Whether it was given any."""
        if not self._airdrop:
            return False
        address = str(self.key.pubkey())
        await self._rpc.call("requestAirdrop", address, AIRDROP)
        return True
