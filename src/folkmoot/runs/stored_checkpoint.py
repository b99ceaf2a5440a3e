"""Whether a checkpoint is what its checkpointer says: for a server that can read the store."""

from collections.abc import Callable

from folkmoot.authority.server.claims import CannotRead
from folkmoot.core.coordinator import Coordinator
from folkmoot.core.coordinator.checkpoints import wanted_step
from folkmoot.core.coordinator.messages import OpportunisticCooldown
from folkmoot.exchange.bucket import BucketError, Missing, folder_of, open_checkpoints
from folkmoot.host.threads import in_daemon_thread
from folkmoot.learning.checkpoints.manifest import CheckpointError, NotWanted, checkpoint_name
from folkmoot.learning.checkpoints.stored_hash import stored_hash


async def check_stored(
    state: Coordinator, claim: OpportunisticCooldown, stopped: Callable[[], bool]
) -> str | None:
    """Why the claim is false, or None; raises `CannotRead`. Reads everything that is stored."""
    root = state.run.model.checkpoint.rstrip("/")
    step = wanted_step(state, claim.model_hash)
    name = checkpoint_name(step)
    if claim.location != (expected := f"{root}/{name}"):
        return f"{claim.location} is not where the checkpoint of step {step} belongs: {expected}"
    return await in_daemon_thread(_wrong, root, name, step, claim.model_hash, stopped)


def _wrong(
    root: str, name: str, step: int, wanted: bytes, stopped: Callable[[], bool]
) -> str | None:
    try:
        folder = folder_of(root)
        if folder is not None and not folder.is_dir():
            raise CannotRead(f"there is no folder {folder} on the server's machine")
        found = stored_hash(open_checkpoints(root), name, step, stopped)
    except (CheckpointError, Missing) as error:
        return str(error)
    except NotWanted:
        return "the cooldown ended before it was read"
    except (BucketError, OSError) as error:
        raise CannotRead(str(error)) from error
    if found != wanted:
        return f"{root}/{name} holds a model with another hash: {found.hex()[:16]}"
    return None
