"""Compile the protobuf description when the package is built or installed from source."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WIRE = Path("src/folkmoot/federated/wire")


class ProtoHook(BuildHookInterface):
    """Runs before a wheel, an editable install or a source archive is made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wire = Path(self.root) / WIRE
        proto = wire / "coordinator.proto"
        subprocess.run([sys.executable, wire / "compile.py", proto], check=True)
        build_data["artifacts"].append(f"/{(WIRE / 'coordinator.binpb').as_posix()}")
