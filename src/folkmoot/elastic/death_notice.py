"""Say for a process that died what it could not say itself: then nobody waits for a timeout."""

from folkmoot.authority.store.kv import Store
from folkmoot.core.iteration import keys
from folkmoot.core.iteration.record import DEAD, read_heartbeat


def starts(store: Store, rank: int) -> int:
    """How often processes of this rank have come to the store so far."""
    count = store.get(keys.incarnation(rank)) or b"0"
    return int(count) if count.isdigit() else 0


def write_death_notice(store: Store, rank: int, starts_before: int) -> bool:
    """The process that was started after `starts_before` is dead; whether it had been there.

    A heartbeat of the same process that is still on its way to the store comes before, and is
    followed; one of another process is left alone.
    """
    standing = store.get(keys.heartbeat(rank))
    while (beat := read_heartbeat(standing)) and beat.incarnation > starts_before:
        if beat.over:
            return True
        notice = bytes(beat.ended(DEAD))
        found = store.compare_set(keys.heartbeat(rank), bytes(beat), notice)
        if found == notice:
            return True
        standing = found
    return False
