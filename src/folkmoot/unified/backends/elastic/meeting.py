"""Where the workers of a world meet, and what each is told of it: torchrun's variables.

Rank 0 holds the store before anybody's code runs, and all ranks come to it as clients
(TORCHELASTIC_USE_AGENT_STORE): no port is chosen that another process could take meanwhile.
"""

import os

import msgspec

#: What `folkmoot.elastic` reads: the store of the global iteration, and the job's name there.
STORE, JOB = "FOLKMOOT_STORE", "FOLKMOOT_JOB"


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    # The node of each rank.
    nodes: tuple[str, ...]
    # Of the sub-master, for the global iteration.
    store: str


def environment(
    meeting: Meeting, *, job: str, role: str, rank: int, generation: int, restarts: int
) -> dict[str, str]:
    """What torchrun would have set."""
    nodes, size = meeting.nodes, len(meeting.nodes)
    here, groups = nodes[rank], list(dict.fromkeys(nodes))
    said = {
        "RANK": rank,
        "LOCAL_RANK": nodes[:rank].count(here),
        "ROLE_RANK": rank,
        "GROUP_RANK": groups.index(here),
        "ROLE_NAME": role,
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": nodes.count(here),
        "ROLE_WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": len(groups),
        "MASTER_ADDR": meeting.host,
        "MASTER_PORT": meeting.port,
        "TORCHELASTIC_RESTART_COUNT": generation - 1,
        "TORCHELASTIC_MAX_RESTARTS": restarts,
        "TORCHELASTIC_RUN_ID": job,
        "TORCHELASTIC_USE_AGENT_STORE": True,
        STORE: os.environ.get(STORE) or meeting.store,
        # A world that starts anew has other ranks: it counts from the beginning.
        JOB: f"{job}.{role}.{generation}",
    }
    return {name: str(value) for name, value in said.items()}
