"""The newest state of a coordinator account: told by subscription, asked for when it is silent."""

import asyncio
import base64
import json
from collections.abc import Callable
from typing import Any

import zstandard
from solders.pubkey import Pubkey
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana import layout
from folkmoot.authority.solana.account import AccountError, Record, read
from folkmoot.authority.solana.place import websocket_url
from folkmoot.authority.solana.rpc import Rpc, RpcRefused
from folkmoot.host.clock import backoff
from folkmoot.host.tasks import end_tasks

# How often the account's number is asked for: a subscription may die without a word.
LOOK_SECONDS = 2.0
MESSAGE_MAX = 1024 * 1024
_SEQUENCE = {"offset": layout.RUN.fields["sequence"][1], "length": 8}  # type: ignore[index]
_WHOLE = {"encoding": "base64+zstd", "commitment": "confirmed"}
_NUMBER = {"encoding": "base64", "commitment": "confirmed", "dataSlice": _SEQUENCE}


class Follower:
    """Calls `on_record` with every newer record of the account at `address`.

    `on_look` is called whenever it was looked at, newer or not.
    """

    def __init__(
        self,
        rpc: Rpc,
        address: Pubkey,
        program: Pubkey,
        on_record: Callable[[Record], None],
        on_look: Callable[[], None],
    ) -> None:
        self._rpc, self._address, self._program = rpc, address, program
        self._on_record, self._on_look = on_record, on_look
        self._sequence = -1
        self._least = 0  # no look may be of an earlier slot
        self.slot = -1
        """Of the newest look."""
        self._wake = asyncio.Event()
        self.last_error = ""
        self.received = 0

    async def run(self) -> None:
        """Until cancelled; raises `Denied` when there is no such run."""
        listening = asyncio.create_task(self._listen())
        try:
            await self._look()
        finally:
            await end_tasks([listening])

    def look_now(self) -> None:
        self._wake.set()

    def look_since(self, slot: int) -> None:
        """Look now, and from now on at nothing of before `slot`, whichever node is asked."""
        self._least = max(self._least, slot)
        if self.slot < slot:
            self.look_now()

    async def _look(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._refresh()
                self.last_error = ""
                self._on_look()
            except (Unreachable, RpcRefused) as error:
                self.last_error = str(error)
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _refresh(self) -> None:
        slot, value = await self._ask(_NUMBER) if self._sequence >= 0 else (0, None)
        number = base64.b64decode(value["data"][0]) if value else b""
        if not value or int.from_bytes(number, "little") > self._sequence:
            slot, value = await self._ask(_WHOLE)
            self._take(value)
        self.slot = max(self.slot, slot)

    async def _ask(self, options: dict[str, Any]) -> tuple[int, Any]:
        """(slot, account) as a node has it that is not behind what we know of."""
        wanted = {**options, "minContextSlot": self._least}
        told = await self._rpc.call("getAccountInfo", str(self._address), wanted)
        return int(told["context"]["slot"]), told["value"]

    def _take(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise Denied("there is no such run: it was not created, or it was closed")
        if value.get("owner") != str(self._program):
            raise Denied("the account belongs to another program: is ?program= right?")
        try:
            record = read(_unpacked(value["data"][0]))
        except AccountError as error:
            raise Denied(str(error)) from None
        if int(record["sequence"]) > self._sequence:
            self._sequence = int(record["sequence"])
            self._on_record(record)

    async def _listen(self) -> None:
        """Subscribe, and again after every break; whoever fails here is only slower to hear."""
        delays = backoff(0.2, 5.0)
        while True:
            url = self._rpc.url
            try:
                async with connect(websocket_url(url), max_size=MESSAGE_MAX) as socket:
                    asked = {"jsonrpc": "2.0", "id": 1, "method": "accountSubscribe"}
                    await socket.send(json.dumps({**asked, "params": [str(self._address), _WHOLE]}))
                    delays = backoff(0.2, 5.0)
                    async for message in socket:
                        self.received += len(message)
                        self._heard(message)
            except (OSError, WebSocketException, TimeoutError):
                self._rpc.pass_over(url)
            await asyncio.sleep(next(delays))

    def _heard(self, message: str | bytes) -> None:
        try:
            told = json.loads(message)
            value = told["params"]["result"]["value"] if told.get("method") else None
            if value is not None:
                self._take(value)
        except (ValueError, TypeError, KeyError, Denied):
            self.look_now()  # ask instead


def _unpacked(text: str) -> bytes:
    packed = base64.b64decode(text)
    try:
        if zstandard.frame_content_size(packed) > layout.RUN.itemsize:
            raise AccountError("the account is larger than a run's")
        return zstandard.ZstdDecompressor().decompress(packed, layout.RUN.itemsize)
    except zstandard.ZstdError as error:
        raise AccountError(f"a node sent what is no account: {error}") from None
