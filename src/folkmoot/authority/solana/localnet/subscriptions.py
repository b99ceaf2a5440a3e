"""The subscriptions of Solana's WebSocket: accounts, signatures, slots."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from solders.pubkey import Pubkey
from solders.signature import Signature

from folkmoot.authority.solana.localnet.ledger import NodeError
from folkmoot.authority.solana.localnet.methods import JsonRpcMethods, parsed, told

WAITING_MAX = 1000  # notifications for one connection that does not read them
SUBSCRIPTIONS_MAX = 100  # of one connection


class Subscription(NamedTuple):
    kind: str  # account, signature or slot
    key: Any
    options: dict[str, Any]


class Subscriber:
    """One WebSocket: what it asked for, and what it is told next."""

    numbers = count(1)

    def __init__(self, methods: JsonRpcMethods) -> None:
        self._methods = methods
        self._asked: dict[int, Subscription] = {}
        self.told: asyncio.Queue[dict[str, Any]] = asyncio.Queue(WAITING_MAX)

    def call(self, method: str, params: list[Any]) -> Any:
        kind, verb = method.removesuffix("Unsubscribe"), "Unsubscribe"
        if method.endswith("Subscribe"):
            kind, verb = method.removesuffix("Subscribe"), "Subscribe"
        if kind not in ("account", "signature", "slot"):
            return self._methods.call(method, params)
        if verb == "Unsubscribe":
            return self._asked.pop(params[0] if params else -1, None) is not None
        return self._subscribe(kind, params)

    def _subscribe(self, kind: str, params: list[Any]) -> int:
        if len(self._asked) >= SUBSCRIPTIONS_MAX:
            raise NodeError(-32602, f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions")
        options = params[1] if len(params) > 1 and isinstance(params[1], dict) else {}
        key: Any = None
        if kind == "account":
            key = parsed(Pubkey, params)
        elif kind == "signature":
            key = parsed(Signature, params)
        number = next(self.numbers)
        self._asked[number] = Subscription(kind, key, options)
        return number

    def changed(self, key: Pubkey) -> None:
        found = self._methods.ledger.account(key)
        for number, asked in self._of("account", key):
            if found is not None:
                self._tell("account", number, self._methods.context(told(found, asked.options)))

    def slot(self) -> None:
        """A slot begins: whoever waits for one or for a signature hears of it."""
        ledger = self._methods.ledger
        now = {"parent": ledger.slot - 1, "root": max(ledger.slot - 32, 0), "slot": ledger.slot}
        for number, _ in self._of("slot", None):
            self._tell("slot", number, now)
        for number, asked in list(self._asked.items()):
            status = ledger.statuses.get(asked.key) if asked.kind == "signature" else None
            if status is not None and ledger.slot > status.slot:
                self._tell("signature", number, self._methods.context({"err": status.error}))
                del self._asked[number]

    def _of(self, kind: str, key: Any) -> Iterator[tuple[int, Subscription]]:
        return ((n, s) for n, s in list(self._asked.items()) if s.kind == kind and s.key == key)

    def _tell(self, kind: str, number: int, result: Any) -> None:
        if self._methods.ledger.faults.mute or self.told.full():
            return
        params = {"result": result, "subscription": number}
        self.told.put_nowait({"jsonrpc": "2.0", "method": f"{kind}Notification", "params": params})
