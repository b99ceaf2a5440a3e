"""The newest state of a coordinator account: told by subscription, asked for when it is silent.

Nodes are strangers. What cannot be a run's account is asked of another one, a subscription that
tells such things or floods is ended, and from time to time a node is asked that is not asked else:
the usual one may have stopped following the cluster and answer as if nothing happened there.
"""

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Any

import msgspec
from solders.pubkey import Pubkey
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.solana import answers, layout
from folkmoot.authority.solana.account import AccountError, Record, read, state_of
from folkmoot.authority.solana.place import websocket_url
from folkmoot.authority.solana.rpc import NodesBehind, Rpc
from folkmoot.core.coordinator import Coordinator
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.clock import backoff
from folkmoot.host.tasks import end_tasks

# How often the account's number is asked for: a subscription may die without a word.
LOOK_SECONDS = 2.0
OTHERS_SECONDS = 10.0  # how often another node is asked for it
# How long all nodes may show less than one of them did. They may lag; they do not for so long.
LESS_SECONDS = 120.0
MESSAGE_MAX = 1024 * 1024
CLOSE_SECONDS = 0.5  # who floods is not waited for
# Messages in a row that tell nothing new; a cluster tells of each change once or twice.
STALE_MAX = 1000
_SEQUENCE = {"offset": layout.RUN.fields["sequence"][1], "length": 8}  # type: ignore[index]
_WHOLE = {"encoding": "base64+zstd", "commitment": "confirmed"}
_NUMBER = {"encoding": "base64", "commitment": "confirmed", "dataSlice": _SEQUENCE}
OnNews = Callable[[Record, Coordinator], None]


class _Connect(connect):
    """Without following anybody elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception:
        return exc


class Follower:
    """Calls `on_news` with every newer record of the account of run `run_id`, and its state.

    `on_look` is called whenever it was looked at or could not be, newer or not.
    """

    def __init__(
        self,
        rpc: Rpc,
        address: Pubkey,
        program: Pubkey,
        run_id: str,
        on_news: OnNews,
        on_look: Callable[[], None],
    ) -> None:
        self._rpc, self._address, self._program = rpc, address, program
        self._run_id, self._on_news, self._on_look = run_id, on_news, on_look
        self._sequence = -1
        self._less_since: float | None = None
        self.slot = -1
        """Of the newest look."""
        self._wake = asyncio.Event()
        self.last_error = ""
        self.received = 0

    async def run(self) -> None:
        """Until cancelled; raises `Denied` when there is no such run."""
        beside = [asyncio.create_task(self._listen()), asyncio.create_task(self._ask_others())]
        try:
            await self._look()
        finally:
            await end_tasks(beside)

    def look_now(self) -> None:
        self._wake.set()

    async def _look(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._refresh()
                self.last_error = ""
            except Unreachable as error:
                self.last_error = str(error)
            self._on_look()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _refresh(self) -> None:
        if self._sequence >= 0:
            asked = self._asked(_NUMBER, self._rpc.since)
            slot, number = await self._rpc.call(self._read_number, *asked)
            self._compare(number)
            if number is not None and number <= self._sequence:
                self.slot = slot
                return
        asked = self._asked(_WHOLE, self._rpc.since)
        self.slot, news = await self._rpc.call(self._read_whole, *asked)
        self._take(news)

    def _asked(self, options: dict[str, Any], since: int) -> tuple[Any, ...]:
        """For the account as a node has it that knows of slot `since`."""
        return "getAccountInfo", str(self._address), {**options, "minContextSlot": since}

    def _compare(self, number: int | None) -> None:
        now = asyncio.get_running_loop().time()
        if number is None or number >= self._sequence:
            self._less_since = None
            return
        self._rpc.pass_over(self._rpc.url)  # does another one show as little?
        if self._less_since is None:
            self._less_since = now
        elif now - self._less_since > LESS_SECONDS:
            raise Denied(
                f"all nodes show change {number} of the run, and one showed {self._sequence}:"
                " either it was closed and created again, or that one lied; join again"
            )

    def _read_number(self, told: msgspec.Raw) -> tuple[int, int | None]:
        slot, number = _number_of(told)
        return self._checked(slot), number

    def _read_whole(self, told: msgspec.Raw) -> tuple[int, tuple[Record, Coordinator] | None]:
        slot, account = answers.read_account(told)
        return self._checked(slot), self._news(account)

    def _checked(self, slot: int) -> int:
        if slot < self._rpc.since:
            raise NodesBehind(f"a node shows what was before slot {self._rpc.since}")
        return slot

    def _news(self, account: answers.Account | None) -> tuple[Record, Coordinator] | None:
        """The account's record and state if it is newer; raises `Denied` when it is not our run."""
        try:
            record = read(answers.account_bytes(account, self._program))
            if int(record["sequence"]) <= self._sequence:
                return None
            state = state_of(record)
        except AccountError as error:
            raise Denied(str(error)) from None
        if state.run.run_id != self._run_id:
            raise Denied(f"the account is that of another run than '{self._run_id}'")
        return record, state

    def _take(self, news: tuple[Record, Coordinator] | None) -> None:
        if news is not None and int(news[0]["sequence"]) > self._sequence:
            self._sequence = int(news[0]["sequence"])
            self._on_news(*news)

    async def _ask_others(self) -> None:
        shown = -1  # by the last one that knew more
        while len(self._rpc.urls) > 1:
            await asyncio.sleep(OTHERS_SECONDS)
            if self._sequence < shown:
                self._rpc.since = 0  # whoever told of that slot keeps what happened from us
            try:
                url, (_, number) = await self._rpc.ask_another(_number_of, *self._asked(_NUMBER, 0))
            except (Unreachable, Denied):
                continue
            if number is not None and number > self._sequence:
                shown = number
                self._rpc.ask_first(url)
                self.look_now()

    async def _listen(self) -> None:
        """Subscribe, and again after every break; whoever fails here is only slower to hear."""
        delays = backoff(0.2, 5.0)
        while True:
            url, before = self._rpc.url, self._sequence
            try:
                await self._listen_to(url)
            except (OSError, WebSocketException, Denied, ValueError, *UNREADABLE):
                self.look_now()  # ask instead
            self._rpc.pass_over(url)
            if self._sequence > before:
                delays = backoff(0.2, 5.0)
            await asyncio.sleep(next(delays))

    async def _listen_to(self, url: str) -> None:
        stale, where = 0, websocket_url(url)
        async with _Connect(where, max_size=MESSAGE_MAX, close_timeout=CLOSE_SECONDS) as socket:
            asked = {"jsonrpc": "2.0", "id": 1, "method": "accountSubscribe"}
            asked["params"] = [str(self._address), _WHOLE]
            await socket.send(msgspec.json.encode(asked).decode())
            async for message in socket:
                began = time.monotonic()
                self.received += len(message)
                told = msgspec.json.decode(message, type=answers.Notification).params
                news = self._news(told.result.value) if told else None
                stale = 0 if news else stale + 1
                if stale > STALE_MAX:
                    raise ValueError("it tells nothing new, again and again")
                self._take(news)
                # Half of our time at most: there is no end to what one can make up.
                await asyncio.sleep(time.monotonic() - began)


def _number_of(told: msgspec.Raw) -> tuple[int, int | None]:
    """(slot, number of the newest change, or None when there is no account)."""
    slot, account = answers.read_account(told)
    if account is None:
        return slot, None
    number = base64.b64decode(account.data[0], validate=True)
    if len(number) != _SEQUENCE["length"]:
        raise ValueError("it shows another part of the account")
    return slot, int.from_bytes(number, "little")
