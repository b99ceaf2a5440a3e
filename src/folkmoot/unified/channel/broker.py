"""Holds channels: listens for their ends, and lets in who knows the job's secret.

One thread, which waits for sockets and never for a peer. Nothing that ends send is unpickled here:
records are bytes. A broker that is killed is followed by another one on the same folder, at the
same address; the ends come back by themselves and go on.
"""

import logging
import socket
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from folkmoot.unified.channel.end import ChannelEnd
from folkmoot.unified.channel.held_channel import HeldChannel
from folkmoot.unified.channel.queue import ChannelRules
from folkmoot.unified.rpc.entrance import Entrance, Seals
from folkmoot.unified.rpc.io_loop import IoLoop, Timer

log = logging.getLogger(__name__)


class Broker:
    """`with Broker(folder, secret, {"a": ChannelRules()}) as broker: broker.listen(address)`."""

    def __init__(self, folder: Path, secret: bytes, channels: Mapping[str, ChannelRules]) -> None:
        self._loop = IoLoop()
        self._channels: dict[str, HeldChannel] = {}
        self._timers: dict[str, Timer] = {}
        self._ends: set[ChannelEnd] = set()
        self._unsettled: list[HeldChannel] = []
        self._entrance = Entrance(self._loop, secret, self._admit)
        try:
            for name, rules in channels.items():
                self._channels[name] = HeldChannel(name, rules, folder / name)
        except BaseException:
            self._close_channels()
            raise

    def __enter__(self) -> "Broker":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def listen(self, address: str) -> str:
        """Take connections at `unix:/path` or `tcp:host:port`; the address with its real port."""
        return self._entrance.listen(address)

    def close(self) -> None:
        """End every connection. What the channels hold stays in the folder."""
        done = threading.Event()
        self._loop.soon(lambda: self._close(done))
        done.wait()

    def _close(self, done: threading.Event) -> None:
        self._entrance.close()
        for end in list(self._ends):
            end.lose("the broker ends")
        for timer in self._timers.values():
            timer.cancel()
        self._close_channels()
        done.set()

    def _close_channels(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        self._unsettled.clear()

    def _admit(self, stream: socket.socket, seals: Seals) -> None:
        end = ChannelEnd(self._loop, stream, seals, self._channels, self._happened, self._ends)
        end.begin()

    def _happened(self, channel: HeldChannel) -> None:
        """Settled when all that has come is carried out: one write and one answer for all of it."""
        if not self._unsettled:
            self._loop.soon(self._settle_all)
        if channel not in self._unsettled:
            self._unsettled.append(channel)

    def _settle_all(self) -> None:
        unsettled, self._unsettled = self._unsettled, []
        for channel in unsettled:
            if self._channels.get(channel.name) is channel:
                self._settle(channel)

    def _settle(self, channel: HeldChannel) -> None:
        """Whatever happened is written down, then told; deadlines of the channel are kept."""
        try:
            after = channel.settle()
        except OSError as error:
            return self._give_up(channel, error)
        if after is not None:
            self._settle_after(channel, after / 1000)
        return None

    def _settle_after(self, channel: HeldChannel, seconds: float) -> None:
        """One timer a channel; it may come too early, but that is rare and does no harm."""
        timer = self._timers.get(channel.name)
        if timer is not None:
            if timer.at <= time.monotonic() + seconds:
                return
            timer.cancel()

        def settle() -> None:
            del self._timers[channel.name]
            self._settle(channel)

        self._timers[channel.name] = self._loop.after(seconds, settle)

    def _give_up(self, channel: HeldChannel, error: OSError) -> None:
        """What cannot be written down must not be told: the channel is over, as after a kill."""
        log.error("the channel %s cannot be written down: %s", channel.name, error)
        self._channels.pop(channel.name, None)
        for end in [end for end in self._ends if end.channel is channel]:
            end.lose(f"{channel.name} cannot be written down: {error}")
        channel.close()
