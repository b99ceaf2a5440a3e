"""How members of a run talk: gossip that reaches everybody, content by name, and questions."""

from folkmoot.exchange.peer.blob_store import StoreFull
from folkmoot.exchange.peer.config import PeerConfig
from folkmoot.exchange.peer.events import (
    Connected,
    DialFailed,
    Disconnected,
    Ignored,
    Misbehaved,
    PeerEvent,
    TurnedAway,
)
from folkmoot.exchange.peer.fetch import FetchFailed
from folkmoot.exchange.peer.gossip import Limits
from folkmoot.exchange.peer.link import LinkTraffic
from folkmoot.exchange.peer.message import Blob, GossipMessage
from folkmoot.exchange.peer.model import (
    ModelManifest,
    Parameter,
    SharedModel,
    WrongModel,
    fetch_model,
)
from folkmoot.exchange.peer.peer import Peer
from folkmoot.exchange.peer.rpc import CallRefused, NoAnswer, RpcMethod

__all__ = [
    "Blob",
    "CallRefused",
    "Connected",
    "DialFailed",
    "Disconnected",
    "FetchFailed",
    "GossipMessage",
    "Ignored",
    "Limits",
    "LinkTraffic",
    "Misbehaved",
    "ModelManifest",
    "NoAnswer",
    "Parameter",
    "Peer",
    "PeerConfig",
    "PeerEvent",
    "RpcMethod",
    "SharedModel",
    "StoreFull",
    "TurnedAway",
    "WrongModel",
    "fetch_model",
]
