"""Why a channel cannot be used: each reason a type, each message a sentence."""

from folkmoot.unified.channel.intervals import IdRange


class ChannelError(Exception):
    """The channel cannot do what was asked."""


class ChannelLost(ChannelError):
    """Nobody has held the channel for longer than this end waits."""


class Closed(ChannelError):
    """Nothing can be put any more."""


class Drained(ChannelError):
    """The channel is closed and all its records are acked: none will come."""


class Left(ChannelError):
    """This end has left the channel."""


class TimeOver(TimeoutError):
    """Ours; a socket's is a broken connection."""


class AlreadyUsed(ChannelError):
    """Nothing was put: these records were used by somebody who came first."""

    def __init__(self, channel: str, spans: dict[str, list[IdRange]]) -> None:
        count = sum(span.end - span.first for some in spans.values() for span in some)
        super().__init__(f"{count} records that this was made from are already used in {channel}")
        self.spans = spans


class SpoolError(ChannelError):
    """What a channel wrote down cannot be used; the message says why and what to do."""
