"""What can be set about a peer. The defaults suit one machine; `bind` and `relays` open it up."""

import msgspec

from folkmoot.exchange.peer.gossip import Limits


class PeerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Times in seconds, sizes in bytes."""

    bind: str = "127.0.0.1:0"
    """`0.0.0.0:0` for other machines."""
    relays: tuple[str, ...] = ()
    """Urls of relays that help where no direct path exists; ("default",) is iroh's public set."""
    discovery: bool = False
    """Look peers up by key in iroh's public directory when their address is stale."""
    advertise: tuple[str, ...] = ()
    """Further `host:port` at which this peer can be reached (a forwarded port)."""

    inline_limit: int = 64 << 10
    """A body up to this size rides in its message; a larger one is fetched by name."""
    head_limit: int = 64 << 10
    store_bytes: int = 4 << 30
    """The most that is kept for peers, in memory; `Peer.make_room` asks for what a run needs."""
    queue_bytes: int = 16 << 20
    """A neighbour that leaves more than this unread is hung up on."""
    receive_window: int = 16 << 20
    """What a neighbour may have under way to us before we read it."""
    requests: int = 16
    """How many requests of a neighbour are served at a time."""
    call_limit: int = 4 << 20
    """Of a request or an answer."""
    gossip: Limits = Limits()

    frames_per_second: float = 1000.0
    bytes_per_second: float = 32 << 20
    """Of gossip from one neighbour; a burst of four seconds' worth is allowed."""

    dial_time: float = 10.0
    greet_time: float = 5.0
    grace: float = 1.0
    """Of two peers the smaller key dials; the larger one does too when this has passed."""
    backoff: float = 0.1
    backoff_limit: float = 10.0
    silence: float = 15.0
    """A neighbour from whom no packet came for so long is gone (a live one is heard every 5 s)."""
    stall: float = 5.0
    """How long a piece, a frame or an answer may take before its sender is replaced."""
    answer_time: float = 30.0
    """How long finding the answer to a question may take."""
    shun: float = 30.0
    """How long one who broke the rules is refused; doubled each time."""

    @property
    def frame_limit(self) -> int:
        """Of one gossip frame: a message with everything in it, or the longest list of ids."""
        return max(self.inline_limit + self.head_limit, 18 * self.gossip.have_ids) + 512
