"""Whether a checkpoint is what its checkpointer says: for a server that can read the store."""

import re
from collections.abc import Callable

from folkmoot.authority.server.claims import CannotRead
from folkmoot.core.coordinator import Coordinator
from folkmoot.core.coordinator.messages import OpportunisticCooldown
from folkmoot.exchange.bucket import BucketError, Missing, folder_of, open_checkpoints
from folkmoot.host.threads import in_daemon_thread
from folkmoot.learning.checkpoints.manifest import CheckpointError, Stopped
from folkmoot.learning.checkpoints.stored_hash import stored_hash


async def check_stored(
    state: Coordinator, claim: OpportunisticCooldown, stopped: Callable[[], bool]
) -> str | None:
    """Why the claim is false, or None; raises `CannotRead`. Reads everything that is stored."""
    root = state.run.model.checkpoint.rstrip("/")
    name = claim.location.removeprefix(root).strip("/")
    if not claim.location.startswith(root) or not re.fullmatch(r"step-\d{8,}", name):
        return f"{claim.location} is not a checkpoint in {root}"
    return await in_daemon_thread(
        _wrong, root, name, state.progress.step, claim.model_hash, stopped
    )


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
    except Stopped:
        return "the cooldown ended before it was read"
    except (BucketError, OSError) as error:
        raise CannotRead(str(error)) from error
    if found != wanted:
        return f"{root}/{name} holds a model with another hash: {found.hex()[:16]}"
    return None
