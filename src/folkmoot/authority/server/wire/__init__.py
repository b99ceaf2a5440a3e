"""The messages of `run.proto`, as classes, and what a signature covers."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from folkmoot.host.proto import Described
from folkmoot.host.signing import framed

SERVICE = "folkmoot.run.Run"
_DESCRIBED = Described(Path(__file__).with_name("run.proto"))
# Every message of the file is a class of this module.
globals().update(_DESCRIBED.messages)
# Request and response class of every method.
METHODS = _DESCRIBED.methods("Run")

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


# The largest thing a client may say: two filters for 65,535 clients, and room for the rest.
MAX_REQUEST = 512 * 1024
# The largest state: 65,535 clients and all their witnesses' filters are 43 MB. A liar's bytes can
# become seventy times as many in memory.
MAX_CHANGE = 64 * 1024 * 1024
# The most bytes of a data file in one answer.
MAX_READ = 4 * 1024 * 1024


class Range(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which bytes of which data file; a length of 0 asks for the size only."""

    name: Annotated[str, msgspec.Meta(max_length=255)]
    start: Annotated[int, msgspec.Meta(ge=0)]
    length: Annotated[int, msgspec.Meta(ge=0, le=MAX_READ)]


def to_bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def signed_bytes(method: str, run_id: str, request: Any) -> bytes:
    """What the signature of a `Signed` covers."""
    return framed(
        b"folkmoot run 1",
        method.encode(),
        run_id.encode(),
        request.session,
        request.nonce.to_bytes(8, "little"),
        request.payload,
    )
