"""Channels between the roles of a job: bounded, leased, and held so that they outlive a death."""

from folkmoot.unified.channel.batch import Batch
from folkmoot.unified.channel.broker import Broker
from folkmoot.unified.channel.data_channel import DataChannel
from folkmoot.unified.channel.errors import (
    AlreadyUsed,
    ChannelError,
    ChannelLost,
    Closed,
    Drained,
    Left,
    SpoolError,
)
from folkmoot.unified.channel.messages import Stats
from folkmoot.unified.channel.queue import ChannelRules

__all__ = [
    "AlreadyUsed",
    "Batch",
    "Broker",
    "ChannelError",
    "ChannelLost",
    "ChannelRules",
    "Closed",
    "DataChannel",
    "Drained",
    "Left",
    "SpoolError",
    "Stats",
]
