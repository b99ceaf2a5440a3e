"""What nodes answer, as far as a client of a run reads it. Whatever else they say is left out."""

import base64
from typing import Annotated, Any, Generic, TypeVar

import msgspec
import zstandard
from solders.hash import Hash
from solders.pubkey import Pubkey

from folkmoot.authority import Denied
from folkmoot.authority.solana import layout
from folkmoot.authority.solana.account import AccountError

NO_RUN = "there is no such run: it was not created, or it was closed, or ?program= is not right"
WINDOW_MAX = 8 * 1024 * 1024  # bytes of memory for unpacking an account; nodes use 2 MiB
T = TypeVar("T")
# Slots, heights and lamports are counted with 64 bits by all who make them.
Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Context(msgspec.Struct):
    slot: Number


class InContext(msgspec.Struct, Generic[T]):
    """An answer, and the slot of which it is."""

    context: Context
    value: T


class Account(msgspec.Struct):
    owner: str
    data: tuple[str, str]  # (bytes as text, how)


class Blockhash(msgspec.Struct):
    blockhash: str
    lastValidBlockHeight: Number

    @property
    def hash(self) -> Hash:
        return Hash.from_string(self.blockhash)

    def __post_init__(self) -> None:
        try:
            self.hash  # noqa: B018  so that it is one
        except Exception as error:  # solders has an error of its own for each kind
            raise ValueError(f"no blockhash: {error}") from None


class Status(msgspec.Struct):
    """What became of a transaction."""

    slot: Number
    err: Any = None
    confirmationStatus: str | None = None


class _Told(msgspec.Struct):
    result: InContext[Account]


class Notification(msgspec.Struct):
    """A message of a subscription: of an account, or an answer to us."""

    params: _Told | None = None


def read_number(told: msgspec.Raw) -> int:
    return msgspec.json.decode(told, type=Number)


def read_blockhash(told: msgspec.Raw) -> Blockhash:
    return msgspec.json.decode(told, type=InContext[Blockhash]).value


def read_status(told: msgspec.Raw) -> Status | None:
    """Of the one transaction that was asked for."""
    return msgspec.json.decode(told, type=InContext[tuple[Status | None]]).value[0]


def read_account(told: msgspec.Raw) -> tuple[int, Account | None]:
    """(slot, account)."""
    answer = msgspec.json.decode(told, type=InContext[Account | None])
    return answer.context.slot, answer.value


def account_bytes(account: Account | None, program: Pubkey) -> bytes:
    """Of an account of the program; raises `Denied` when it is none, `ValueError` when it lies."""
    if account is None:
        raise Denied(NO_RUN)
    if account.owner != str(program):
        raise Denied("the account belongs to another program: is ?program= right?")
    packed = base64.b64decode(account.data[0], validate=True)
    if account.data[1] == "base64":
        return packed
    try:
        if zstandard.frame_content_size(packed) > layout.RUN.itemsize:
            raise AccountError("the account is larger than a run's")
        unpacking = zstandard.ZstdDecompressor(max_window_size=WINDOW_MAX)
        return unpacking.decompress(packed, layout.RUN.itemsize)
    except zstandard.ZstdError as error:
        raise AccountError(f"a node sent what is no account: {error}") from None
