"""Requests to etcd, and what its answers say."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from folkmoot.authority.store.kv import WrongType
from folkmoot.authority.store.kv.etcd_cluster import MESSAGES
from folkmoot.authority.store.kv.limits import sum_at

Found = tuple[bytes | None, int]  # a value and the revision at which it was written (none: 0)
Step = tuple[bytes | None, bytes]  # a value and what it becomes


def txn(
    compare: Sequence[Any] = (), success: Sequence[Any] = (), failure: Sequence[Any] = ()
) -> Any:
    return MESSAGES["TxnRequest"](compare=compare, success=success, failure=failure)


def range_request(name: bytes, end: bytes = b"") -> Any:
    return MESSAGES["RangeRequest"](key=name, range_end=end)


def range_op(name: bytes) -> Any:
    return MESSAGES["RequestOp"](request_range=range_request(name))


def put(name: bytes, value: bytes) -> Any:
    put = MESSAGES["PutRequest"](key=name, value=value)
    return MESSAGES["RequestOp"](request_put=put)


def delete(name: bytes, end: bytes = b"") -> Any:
    delete = MESSAGES["DeleteRangeRequest"](key=name, range_end=end)
    return MESSAGES["RequestOp"](request_delete_range=delete)


def note_key(name: bytes, own: bytes) -> bytes:
    """Where a connection puts what it has for the list of that name."""
    return name + b"\0" + own


def list_range(name: bytes) -> tuple[bytes, bytes]:
    """The key itself and its list."""
    return name, name + b"\1"


def value_is(name: bytes, value: bytes | None) -> Any:
    """Of none, and of `b""`: there is no such key."""
    if not value:
        return revision_is(name, 0)
    return MESSAGES["Compare"](result="EQUAL", target="VALUE", key=name, value=value)


def value_below(name: bytes, value: bytes) -> Any:
    """False of a key that is missing."""
    return MESSAGES["Compare"](result="LESS", target="VALUE", key=name, value=value)


def revision_is(name: bytes, revision: int) -> Any:
    """0: there is no such key."""
    return MESSAGES["Compare"](result="EQUAL", target="MOD", key=name, mod_revision=revision)


def sums(key: str, value: bytes | None, amount: int) -> Iterator[Step]:
    """What may be there and what it becomes: the value, or after others added as much as we do."""
    yield value, (after := b"%d" % sum_at(key, value, amount))
    with contextlib.suppress(WrongType):  # so many others would make it overflow
        while True:
            value = after
            yield value, (after := b"%d" % sum_at(key, value, amount))


def add_any(name: bytes, own: bytes, steps: Sequence[Step], done: bytes) -> list[Any]:
    """The one of the steps that begins at the value there, with the sum as its note."""
    otherwise = range_op(name)
    for value, after in reversed(steps):
        here, puts = value_is(name, value), [put(name, after), put(own, done + after)]
        otherwise = MESSAGES["RequestOp"](request_txn=txn([here], puts, [otherwise]))
    return [otherwise]


def add_and_create_any(
    name: bytes,
    own: bytes,
    sums: Sequence[int],
    created: Sequence[tuple[bytes, bytes]],
    done: bytes,
) -> list[Any]:
    """The one of the sums that follows the number there, with its key, which must be new."""
    otherwise = range_op(name)
    for after, (other, value) in reversed(list(zip(sums, created, strict=True))):
        here = value_is(name, b"%d" % (after - 1)) if after > 1 else revision_is(name, 0)
        said = b"%d" % after
        puts = [put(name, said), put(other, value), put(own, done + said)]
        once = txn([here, revision_is(other, 0)], puts, [otherwise])
        otherwise = MESSAGES["RequestOp"](request_txn=once)
    return [otherwise]


def added(answer: Any, steps: Sequence[Step]) -> tuple[bytes | None, bytes | None]:
    """The sum; or, when the value was none of those in the steps, that."""
    for _, after in steps:
        if answer.succeeded:
            return after, None
        answer, last = answer.responses[0].response_txn, answer.responses[0].response_range
    return None, found(last)[0]


def found(answer: Any) -> Found:
    if not answer.kvs:
        return None, 0
    return bytes(answer.kvs[0].value) or None, answer.kvs[0].mod_revision
