"""How members of a run talk: gossip that reaches everybody, content by name, and questions."""

from folkmoot.exchange.peer.blob_store import StoreFull
from folkmoot.exchange.peer.config import PeerConfig
from folkmoot.exchange.peer.events import (
    Connected,
    Disconnected,
    Event,
    Ignored,
    Misbehaved,
    Turned,
    Unreachable,
)
from folkmoot.exchange.peer.fetch import Unavailable
from folkmoot.exchange.peer.gossip import Limits
from folkmoot.exchange.peer.link import Traffic
from folkmoot.exchange.peer.message import Blob, Message
from folkmoot.exchange.peer.model import Manifest, Parameter, SharedModel, WrongModel, fetch_model
from folkmoot.exchange.peer.peer import Peer
from folkmoot.exchange.peer.rpc import Method, NoAnswer, Refusal

__all__ = [
    "Blob",
    "Connected",
    "Disconnected",
    "Event",
    "Ignored",
    "Limits",
    "Manifest",
    "Message",
    "Method",
    "Misbehaved",
    "NoAnswer",
    "Parameter",
    "Peer",
    "PeerConfig",
    "Refusal",
    "SharedModel",
    "StoreFull",
    "Traffic",
    "Turned",
    "Unavailable",
    "Unreachable",
    "WrongModel",
    "fetch_model",
]
