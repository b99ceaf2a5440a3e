"""The federation: gRPC coordinator, participant SDK, and weights that travel through a bucket.

What a participant's owner needs is here; what a coordinator's owner needs is `federation.toml`
and `folkmoot federate serve`.
"""

from folkmoot.federated.participant.loop import Settings, join_federation, take_part
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.participant.policy import Policy
from folkmoot.host.tls import ClientTls

__all__ = ["ClientTls", "Participant", "Policy", "Settings", "join_federation", "take_part"]
