"""The messages of `coordinator.proto`, as classes, and what a refused request raises."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from folkmoot.core.user_error import UserError
from folkmoot.host.proto import Described

SERVICE = "folkmoot.federated.Coordinator"
_DESCRIBED = Described(Path(__file__).with_name("coordinator.proto"))
#: Every message of the file is a class of this module.
globals().update(_DESCRIBED.messages)

#: Request and response class of every method.
METHODS = _DESCRIBED.methods("Coordinator")

#: The State enumeration both ways.
STATE = _DESCRIBED.enum("State")
STATE_NAME: dict[int, str] = {number: name for name, number in STATE.items()}
ACCEPT, LATER = 0, 1


if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


def calls(channel: grpc.aio.Channel) -> dict[str, Any]:
    """Every method by name, as a function of its request."""
    return {
        name: channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        for name, (request, response) in METHODS.items()
    }


class RequestRefused(UserError):
    """The coordinator refuses a request: it answers with this status, and the participant gets it.

    Trying the request again as it is would not help.
    """

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code, self.reason = code, reason
