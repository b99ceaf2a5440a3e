"""A broker in this process, and ends of its channel."""

import contextlib
from pathlib import Path
from typing import Any

from folkmoot.unified.channel import Broker, ChannelError, ChannelRules, DataChannel

SECRET = b"the secret of the job"


class Held:
    """A channel `c` that a broker holds; the broker can end and be followed by another."""

    def __init__(self, folder: Path, rules: ChannelRules, address: str) -> None:
        self.folder, self.rules = folder, rules
        self._ends: list[DataChannel] = []
        self.broker = Broker(folder, SECRET, {"c": rules})
        self.address = self.broker.listen(address)

    def end(self, **options: Any) -> DataChannel:
        channel = DataChannel("c", self.address, SECRET, **{"patience": 20.0, **options})
        self._ends.append(channel)
        return channel

    def replace_broker(self) -> None:
        self.broker.close()
        self.broker = Broker(self.folder, SECRET, {"c": self.rules})
        self.broker.listen(self.address)

    def close(self) -> None:
        for end in self._ends:
            with contextlib.suppress(ChannelError):  # what a test could not put
                end.leave()
        self.broker.close()
