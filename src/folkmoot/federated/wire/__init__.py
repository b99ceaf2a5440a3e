"""The messages of `coordinator.proto`, as classes.

An installed package carries the compiled descriptor set. A source tree that was never built
compiles it on first import, through grpcio-tools (a development tool), and keeps it.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "folkmoot.federated.Coordinator"
_PROTO = Path(__file__).with_name("coordinator.proto")


def _descriptor_set() -> bytes:
    compiled = _PROTO.with_suffix(".binpb")
    # Only in a source tree can the description be newer than what was compiled of it.
    source_tree = (_PROTO.parents[4] / "hatch_build.py").exists()
    with contextlib.suppress(FileNotFoundError):
        if not source_tree or compiled.stat().st_mtime >= _PROTO.stat().st_mtime:
            return compiled.read_bytes()
    from folkmoot.federated.wire.compile import compile_proto

    data = compile_proto(_PROTO)
    with contextlib.suppress(OSError):  # a read-only tree compiles again next time
        partial = compiled.with_suffix(f".{os.getpid()}.part")
        partial.write_bytes(data)
        os.replace(partial, compiled)
    return data


def _load() -> tuple[dict[str, Any], Any]:
    pool = descriptor_pool.DescriptorPool()
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(_descriptor_set()).file
    added = pool.AddSerializedFile(file.SerializeToString())
    described = added if added is not None else pool.FindFileByName(file.name)
    classes = {
        name: message_factory.GetMessageClass(message)
        for name, message in described.message_types_by_name.items()
    }
    return classes, described


_CLASSES, _FILE = _load()

Proof: Any = _CLASSES["Proof"]
RendezvousRequest: Any = _CLASSES["RendezvousRequest"]
RendezvousResponse: Any = _CLASSES["RendezvousResponse"]
HeartbeatRequest: Any = _CLASSES["HeartbeatRequest"]
HeartbeatResponse: Any = _CLASSES["HeartbeatResponse"]
StartTrainingRoundRequest: Any = _CLASSES["StartTrainingRoundRequest"]
StartTrainingRoundResponse: Any = _CLASSES["StartTrainingRoundResponse"]
EndTrainingRoundRequest: Any = _CLASSES["EndTrainingRoundRequest"]
EndTrainingRoundResponse: Any = _CLASSES["EndTrainingRoundResponse"]
FixedPoint: Any = _CLASSES["FixedPoint"]
SecureStepRequest: Any = _CLASSES["SecureStepRequest"]
SecureStepResponse: Any = _CLASSES["SecureStepResponse"]
StatusRequest: Any = _CLASSES["StatusRequest"]
StatusResponse: Any = _CLASSES["StatusResponse"]

#: Request and response class of every method.
METHODS: dict[str, tuple[Any, Any]] = {
    name: (_CLASSES[method.input_type.name], _CLASSES[method.output_type.name])
    for name, method in _FILE.services_by_name["Coordinator"].methods_by_name.items()
}

_STATES = _FILE.enum_types_by_name["State"].values_by_name
#: The State enumeration both ways.
STATE: dict[str, int] = {name: value.number for name, value in _STATES.items()}
STATE_NAME: dict[int, str] = {number: name for name, number in STATE.items()}
ACCEPT, LATER = 0, 1
