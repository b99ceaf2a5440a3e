"""Compile the protobuf descriptions when the package is built or installed from source."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ProtoHook(BuildHookInterface):
    """Runs before a wheel, an editable install or a source archive is made."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root) / "src/folkmoot"
        protos = sorted(package.rglob("*.proto"))
        compiler = package / "host/proto.py"
        subprocess.run([sys.executable, compiler, *protos], check=True)
        for proto in protos:
            compiled = proto.with_suffix(".binpb").relative_to(self.root)
            build_data["artifacts"].append(f"/{compiled.as_posix()}")
