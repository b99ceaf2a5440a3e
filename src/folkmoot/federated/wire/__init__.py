"""The messages of `coordinator.proto`, as classes, and what a refused request raises."""

from pathlib import Path
from typing import Any

import grpc

from folkmoot.host.proto import Described

SERVICE = "folkmoot.federated.Coordinator"
_DESCRIBED = Described(Path(__file__).with_name("coordinator.proto"))
_CLASSES = _DESCRIBED.messages

Proof: Any = _CLASSES["Proof"]
RendezvousRequest: Any = _CLASSES["RendezvousRequest"]
RendezvousResponse: Any = _CLASSES["RendezvousResponse"]
HeartbeatRequest: Any = _CLASSES["HeartbeatRequest"]
HeartbeatResponse: Any = _CLASSES["HeartbeatResponse"]
StartTrainingRoundRequest: Any = _CLASSES["StartTrainingRoundRequest"]
StartTrainingRoundResponse: Any = _CLASSES["StartTrainingRoundResponse"]
EndTrainingRoundRequest: Any = _CLASSES["EndTrainingRoundRequest"]
EndTrainingRoundResponse: Any = _CLASSES["EndTrainingRoundResponse"]
FixedPoint: Any = _CLASSES["FixedPoint"]
SecureStepRequest: Any = _CLASSES["SecureStepRequest"]
SecureStepResponse: Any = _CLASSES["SecureStepResponse"]
StatusRequest: Any = _CLASSES["StatusRequest"]
StatusResponse: Any = _CLASSES["StatusResponse"]

#: Request and response class of every method.
METHODS = _DESCRIBED.methods("Coordinator")

#: The State enumeration both ways.
STATE = _DESCRIBED.enum("State")
STATE_NAME: dict[int, str] = {number: name for name, number in STATE.items()}
ACCEPT, LATER = 0, 1


class RequestRefused(Exception):
    """The coordinator refuses a request: it answers with this status, and the participant gets it.

    Trying the request again as it is would not help.
    """

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code, self.reason = code, reason
