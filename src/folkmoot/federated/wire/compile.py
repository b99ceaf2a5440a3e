"""Turn `coordinator.proto` into a descriptor set. Needs grpcio-tools; run when a wheel is built.

A descriptor set is what every protobuf runtime reads, whatever its version, so the installed
package needs no compiler and no particular protobuf.
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path


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
    source = Path(sys.argv[1])
    source.with_suffix(".binpb").write_bytes(compile_proto(source))
