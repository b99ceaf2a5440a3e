"""The public face of each package, name by name: it changes only when this list does.

Read from the source, so that a package whose extras are not installed is guarded as well.
"""

import ast
import importlib
from pathlib import Path

import pytest

import folkmoot

SOURCE = Path(__file__).parents[1] / "src"

PUBLIC = {
    "folkmoot": (
        "ConfigError Contribution Denied Federation Method Participant Refusal Run TrainedModel"
        " Unreachable __version__ decode_run extend_run join_federation join_run load_checkpoint"
        " load_federation load_run pause_run read_log register_method resume_run run_state"
        " serve_federation serve_run train_federation train_together update_run"
    ),
    "folkmoot.authority": "Authority DataServer Denied SeesConnections Unreachable",
    "folkmoot.authority.store.kv": (
        "Change MAX_VALUE Store StoreError StoreGone Wakeup Watch WrongType"
    ),
    "folkmoot.core.coordinator": (
        "TABLE AnyEvent Coordinator Phase Run apply create decode decode_run encode next_tick"
    ),
    "folkmoot.core.federation": (
        "TABLE Advert AnyEvent Phase Rules State Task"
        " admits advert apply create decode encode next_tick task"
    ),
    "folkmoot.core.iteration": (
        "TABLE AnyEvent Heartbeats Member Phase RankState Record Rules Takeover"
        " apply create decode encode next_tick"
    ),
    "folkmoot.core.job": (
        "TABLE Actor AnyEvent Backoff Bundle ChannelSpec ClusterSize Gang JobBudget JobSpec Phase"
        " Resource Role RoleBudget RoleSpec Stage State Timeouts actor_id apply create decode"
        " encode next_tick sub_master_id"
    ),
    "folkmoot.elastic": (
        "Fenced Garbage GlobalIteration IterationError RankTaken StoreEmpty StoreLost WorldMismatch"
    ),
    "folkmoot.federated": "Participant Policy Settings ClientTls join_federation take_part",
    "folkmoot.exchange.bucket": (
        "AccessDenied AlreadyExists BrokenOff Bucket BucketError BucketObject Missing NotPossible"
        " ObjectInfo TooLarge TooShort HubRepository folder_of open_checkpoints open_object"
    ),
    "folkmoot.exchange.peer": (
        "Blob CallRefused Connected DialFailed Disconnected FetchFailed GossipMessage Ignored"
        " Limits LinkTraffic Misbehaved ModelManifest NoAnswer Parameter Peer PeerConfig PeerEvent"
        " RpcMethod SharedModel StoreFull TurnedAway WrongModel fetch_model"
    ),
    "folkmoot.learning.data": "DataError OpenUrl Provider Samples open_data",
    "folkmoot.learning.methods": "Method build register_method",
    "folkmoot.learning.methods.distro": "DistroMethod",
    "folkmoot.learning.models": "GPT Precision best_device build compute_type logits",
    "folkmoot.simulate": "WORLDS WorldReport play replay",
    "folkmoot.unified.api": (
        "BadJob Broadcast CallTimeout CurrentWorker DataChannel FutureSequence JobBuilder JobSpec"
        " RLJobBuilder RemoteError RoleBuilder RoleGroup RpcError SelfLoop SubMaster Trainer"
        " Worker WorkerDied answered current_worker load_job rpc run_job submit_job"
    ),
    "folkmoot.unified.backends.elastic": "ElasticMaster ElasticWorker",
    "folkmoot.unified.channel": (
        "AlreadyUsed Batch Broker ChannelError ChannelLost ChannelRules Closed DataChannel Drained"
        " Left SpoolError Stats"
    ),
}
LIGHT = ["folkmoot", "folkmoot.core.coordinator", "folkmoot.unified.api"]


def names_in(file: Path) -> list[str] | None:
    """The `__all__` of a file, or None when it has none."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return sorted(ast.literal_eval(node.value))
    return None


def packages() -> dict[str, list[str]]:
    found = {"folkmoot": sorted(folkmoot.__all__)}
    for file in (SOURCE / "folkmoot").glob("*/**/__init__.py"):
        names = names_in(file)
        if names is not None:
            found[".".join(file.parent.relative_to(SOURCE).parts)] = names
    return found


@pytest.mark.parametrize("package", PUBLIC)
def test_a_package_offers_what_the_list_says(package: str) -> None:
    offered, listed = packages().get(package, []), sorted(PUBLIC[package].split())
    new, gone = set(offered) - set(listed), set(listed) - set(offered)
    assert not new, f"{package} offers {sorted(new)}: add them to PUBLIC if users should rely on it"
    assert not gone, f"{package} no longer offers {sorted(gone)}: that breaks those who use it"


def test_every_package_with_a_public_face_is_listed() -> None:
    unlisted = {name: names for name, names in packages().items() if name not in PUBLIC}
    assert not unlisted, f"add to PUBLIC in tests/test_public_names.py: {unlisted}"


@pytest.mark.parametrize("package", LIGHT)
def test_every_name_that_is_offered_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert [name for name in PUBLIC[package].split() if not hasattr(module, name)] == []


def test_type_checkers_find_every_name_where_it_is_loaded_from() -> None:
    tree = ast.parse((SOURCE / "folkmoot/__init__.py").read_text())
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    seen = {name.asname: f"{node.module}.{name.name}" for node in imports for name in node.names}
    homes = {name: f"folkmoot.{home}.{name}" for name, home in folkmoot._HOMES.items()}
    assert {name: home for name, home in seen.items() if name} == homes
