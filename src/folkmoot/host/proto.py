"""Message classes from a `.proto` file of the tree.

An installed package carries the compiled descriptor set beside the file: what every protobuf
runtime reads, whatever its version, so users need no compiler. A source tree that was never built
compiles it on first import, through grpcio-tools (a development tool), and keeps it.
"""

import contextlib
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


class Described:
    """The messages, enumerations and methods that one file describes."""

    def __init__(self, proto: Path) -> None:
        pool = descriptor_pool.DescriptorPool()
        (file,) = descriptor_pb2.FileDescriptorSet.FromString(_descriptor_set(proto)).file
        added = pool.AddSerializedFile(file.SerializeToString())
        self.file = added if added is not None else pool.FindFileByName(file.name)
        #: Message classes by name.
        self.messages: dict[str, Any] = {
            name: message_factory.GetMessageClass(message)
            for name, message in self.file.message_types_by_name.items()
        }

    def methods(self, service: str) -> dict[str, tuple[Any, Any]]:
        """Request and response class of every method of a service."""
        described = self.file.services_by_name[service].methods_by_name
        return {
            name: (self.messages[method.input_type.name], self.messages[method.output_type.name])
            for name, method in described.items()
        }

    def enum(self, name: str) -> dict[str, int]:
        values = self.file.enum_types_by_name[name].values_by_name
        return {key: value.number for key, value in values.items()}


def _descriptor_set(proto: Path) -> bytes:
    compiled = proto.with_suffix(".binpb")
    # Only in a source tree can the description be newer than what was compiled of it.
    source_tree = any((folder / "hatch_build.py").exists() for folder in proto.parents[:6])
    with contextlib.suppress(FileNotFoundError):
        if not source_tree or compiled.stat().st_mtime >= proto.stat().st_mtime:
            return compiled.read_bytes()
    data = compile_proto(proto)
    with contextlib.suppress(OSError):  # a read-only tree compiles again next time
        from folkmoot.host.files import write_atomically  # not where the package is being built

        write_atomically(compiled, data)
    return data


def compile_proto(proto: Path) -> bytes:
    """The serialized FileDescriptorSet of `proto`."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.binpb"
        command = ["protoc", f"-I{proto.parent}", f"-I{files('grpc_tools') / '_proto'}"]
        failed = protoc.main([*command, f"--descriptor_set_out={out}", proto.name])
        if failed:
            raise RuntimeError(f"protoc could not compile {proto}; its messages are above")
        return out.read_bytes()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        source = Path(name)
        source.with_suffix(".binpb").write_bytes(compile_proto(source))
