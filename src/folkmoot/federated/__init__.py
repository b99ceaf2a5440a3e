"""The federation: gRPC coordinator, participant SDK, and weights that travel through a bucket.

What a participant's owner needs is here; what a coordinator's owner needs is `federation.toml`
and `folkmoot federate serve`.
"""

from folkmoot.federated.participant.connection import Tls
from folkmoot.federated.participant.loop import Settings, join, take_part
from folkmoot.federated.participant.participant import Participant

__all__ = ["Participant", "Settings", "Tls", "join", "take_part"]
