"""Event logs: one JSON object a line, with `time` (seconds since 1970), `type` and its fields.

Everything that is shown of a run is read from these files, while it goes on and after it.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder(enc_hook=lambda value: value.hex())
_decoder = msgspec.json.Decoder(dict[str, Any])


class EventLog:
    """Appends to a file; each line is handed to the system at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, event: msgspec.Struct) -> None:
        fields = msgspec.to_builtins(event, builtin_types=(bytes,))
        for name, value in fields.items():
            if isinstance(value, bytes):
                fields[name] = value.hex()
        os.write(self._fd, _encoder.encode({"time": round(time.time(), 3), **fields}) + b"\n")

    def close(self) -> None:
        os.close(self._fd)


class Reader:
    """Reads a log as it grows. A line that is still being written waits for its end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._position = 0
        self._rest = b""

    def new(self) -> Iterator[dict[str, Any]]:
        """The events written since the last call."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line:
                yield _decoder.decode(line)
