"""Put a run into a store. Once: whoever comes second with the same run finds it there."""

from folkmoot.authority.access import Access
from folkmoot.authority.store import keys
from folkmoot.authority.store.genesis import Genesis, found
from folkmoot.authority.store.kv import Store
from folkmoot.authority.store.kv.register import Register
from folkmoot.authority.store.record import first_record
from folkmoot.core.coordinator import Run
from folkmoot.host.signing import Identity


def create_run(store: Store, run: Run, access: Access, identity: Identity) -> bool:
    """Whether the run is new in the (part of a) store; False when the same run was there.

    Raises `ValueError` when there is another one of this name.
    """
    mine = found(run, access)
    there = store.compare_set(keys.GENESIS, b"", mine.data) or b""
    try:
        genesis = Genesis(there)
    except ValueError as error:
        raise ValueError(
            f"the store holds something else where run '{run.run_id}' should begin ({error}):"
            " use another run_id or another store"
        ) from error
    if not genesis.same_run(run, access.allowed):
        raise ValueError(
            f"the store has a run '{run.run_id}' already, with another configuration or allow-list:"
            " `folkmoot update` changes it; else use the run.toml it was created with, another"
            " run_id, or another store"
        )
    if store.get(keys.ready(0)) is None and store.get(keys.ready(1)) is None:
        first = first_record(genesis, identity)
        Register(store, keys.RECORD, keys.READY).advance(None, first.data, 0)
    return there == mine.data
