"""The methods of Solana's JSON-RPC that clients of a run use, over a `LocalLedger`."""

import asyncio
import base64
import random
from collections.abc import Callable
from typing import Any, TypeVar

import zstandard
from solders.account import Account
from solders.hash import Hash
from solders.pubkey import Pubkey
from solders.signature import Signature
from solders.transaction import VersionedTransaction

from folkmoot.authority.solana.localnet.ledger import LedgerStatus, LocalLedger, NodeError
from folkmoot.authority.solana.transactions import LAMPORTS_PER_SIGNATURE

VERSION = "4.1.2"
KEYS_MAX = 256
Params = list[Any]
Named = TypeVar("Named", Pubkey, Hash, Signature)


class JsonRpcMethods:
    """Answers requests; `call` gives the result or raises `NodeError`."""

    def __init__(self, ledger: LocalLedger) -> None:
        self.ledger = ledger
        self.waiting: set[asyncio.TimerHandle] = set()
        self._methods: dict[str, Callable[[Params], Any]] = {
            "getHealth": lambda params: "ok",
            "getVersion": lambda params: {"solana-core": VERSION, "feature-set": 0},
            "getGenesisHash": lambda params: str(ledger.genesis),
            "getSlot": lambda params: ledger.slot,
            "getBlockHeight": lambda params: ledger.slot,
            "getLatestBlockhash": self._blockhash,
            "isBlockhashValid": lambda params: self.context(ledger.valid(parsed(Hash, params))),
            "getBalance": lambda params: self.context(self._lamports(parsed(Pubkey, params))),
            "getMinimumBalanceForRentExemption": self._rent,
            "getAccountInfo": lambda params: self.context(
                self._account(parsed(Pubkey, params), params)
            ),
            "getMultipleAccounts": self._accounts,
            "getFeeForMessage": lambda params: self.context(LAMPORTS_PER_SIGNATURE),
            "getRecentPrioritizationFees": lambda params: [
                {"slot": ledger.slot, "prioritizationFee": 0}
            ],
            "getSignatureStatuses": self._statuses,
            "requestAirdrop": lambda params: str(
                ledger.airdrop(parsed(Pubkey, params), _number(params, 1, "lamports"))
            ),
            "sendTransaction": self._send,
            "simulateTransaction": self._simulate,
        }

    def call(self, method: str, params: Params) -> Any:
        if method not in self._methods:
            raise NodeError(-32601, f"Method not found: {method}")
        slot = self.ledger.shown_slot
        if any(_least_slot(option) > slot for option in params):
            why = "Minimum context slot has not been reached"
            raise NodeError(-32016, why, {"contextSlot": slot})
        return self._methods[method](params)

    def close(self) -> None:
        for handle in self.waiting:
            handle.cancel()

    def context(self, value: Any) -> dict[str, Any]:
        slot = self.ledger.shown_slot
        return {"context": {"slot": slot, "apiVersion": VERSION}, "value": value}

    def _blockhash(self, params: Params) -> Any:
        newest, height = self.ledger.blockhash
        return self.context({"blockhash": str(newest), "lastValidBlockHeight": height})

    def _lamports(self, key: Pubkey) -> int:
        found = self.ledger.account(key)
        return found.lamports if found else 0

    def _rent(self, params: Params) -> int:
        size = _number(params, 0, "a size")
        if not 0 <= size <= 10 * 1024 * 1024:
            raise NodeError(-32602, "Invalid params: no account is that large")
        return self.ledger.svm.minimum_balance_for_rent_exemption(size)

    def _account(self, key: Pubkey, params: Params) -> Any:
        found = self.ledger.account(key)
        return None if found is None else told(found, _options(params, 1))

    def _accounts(self, params: Params) -> Any:
        keys = [parsed(Pubkey, [name]) for name in _names(params)]
        return self.context([self._account(key, params) for key in keys])

    def _statuses(self, params: Params) -> Any:
        known = [parsed(Signature, [name]) for name in _names(params)]
        return self.context([self._status(signature) for signature in known])

    def _status(self, signature: Signature) -> Any:
        known = self.ledger.statuses.get(signature)
        return None if known is None else self.status_told(known)

    def status_told(self, known: LedgerStatus) -> dict[str, Any]:
        ripe = self.ledger.confirmation(known)
        return {
            "slot": known.slot,
            "confirmations": None if ripe == "finalized" else self.ledger.slot - known.slot,
            "err": known.error,
            "status": {"Ok": None} if known.error is None else {"Err": known.error},
            "confirmationStatus": ripe,
        }

    def _send(self, params: Params) -> str:
        made = self._transaction(params)
        if not _options(params, 1).get("skipPreflight"):
            self._preflight(made)
        faults = self.ledger.faults
        if random.random() >= faults.drop:
            if faults.delay:
                self._later(made, faults.delay)
            else:
                self.ledger.run(made)
        return str(made.signatures[0])

    def _later(self, made: VersionedTransaction, seconds: float) -> None:
        def run() -> None:
            self.waiting.discard(handle)
            self.ledger.run(made)

        handle = asyncio.get_running_loop().call_later(seconds, run)
        self.waiting.add(handle)

    def _preflight(self, made: VersionedTransaction) -> None:
        if made.signatures[0] in self.ledger.statuses:
            return  # sent again: a cluster takes it and does nothing
        if not all(made.verify_with_results()):
            raise NodeError(-32003, "Transaction signature verification failure")
        error, logs, units = self.ledger.simulate(made)
        if error is not None:
            data = {"err": error, "logs": logs, "unitsConsumed": units, "accounts": None}
            raise NodeError(-32002, f"Transaction simulation failed: {error}", data)

    def _simulate(self, params: Params) -> Any:
        error, logs, units = self.ledger.simulate(self._transaction(params))
        value = {"err": error, "logs": logs, "accounts": None, "unitsConsumed": units}
        return self.context({**value, "returnData": None})

    def _transaction(self, params: Params) -> VersionedTransaction:
        text = params[0] if params and isinstance(params[0], str) else ""
        if _options(params, 1).get("encoding") != "base64":
            raise NodeError(-32602, "Invalid params: this network takes base64 transactions only")
        try:
            wire = base64.b64decode(text, validate=True)
        except ValueError as error:
            raise NodeError(-32602, f"invalid base64 encoding: {error}") from None
        return self.ledger.read(wire)


def told(account: Account, options: dict[str, Any]) -> dict[str, Any]:
    """An account as JSON-RPC tells it."""
    data = bytes(account.data)
    cut = options.get("dataSlice")
    if isinstance(cut, dict):
        offset, length = int(cut.get("offset", 0)), int(cut.get("length", 0))
        shown = data[offset : offset + length]
    else:
        shown = data
    encoding = options.get("encoding", "base64")
    if encoding == "base64+zstd":
        shown = zstandard.compress(shown, 1)
    elif encoding not in ("base64", "jsonParsed"):
        raise NodeError(-32602, f"Invalid params: this network does not encode as {encoding}")
    return {
        "data": [base64.b64encode(shown).decode(), encoding.replace("jsonParsed", "base64")],
        "executable": account.executable,
        "lamports": account.lamports,
        "owner": str(account.owner),
        "rentEpoch": 2**64 - 1,
        "space": len(data),
    }


def _options(params: Params, at: int) -> dict[str, Any]:
    return params[at] if len(params) > at and isinstance(params[at], dict) else {}


def _least_slot(option: Any) -> int:
    least = option.get("minContextSlot") if isinstance(option, dict) else None
    return least if isinstance(least, int) else 0


def _number(params: Params, at: int, what: str) -> int:
    if len(params) <= at or not isinstance(params[at], int):
        raise NodeError(-32602, f"Invalid params: {what} is missing")
    return int(params[at])


def _names(params: Params) -> list[Any]:
    """Of as many as one request may ask for."""
    names = params[0] if params and isinstance(params[0], list) else []
    if len(names) > KEYS_MAX:
        raise NodeError(-32602, f"Too many inputs provided; max {KEYS_MAX}")
    return names


def parsed(kind: type[Named], params: Params) -> Named:
    try:
        return kind.from_string(params[0])
    except Exception as error:  # solders has an error of its own for each kind
        raise NodeError(-32602, f"Invalid param: {error}") from None
