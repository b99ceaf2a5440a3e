"""The keys of a job in the store, as the seed spells them; `<n>` is an iteration, `<r>` a rank.

global_iteration_world                  how many ranks there are, fixed by the first
global_iteration_barrier:consensus      the newest decision; moves only by compare-and-set
global_iteration_barrier:arrived:<n>    who has arrived: a list of notes
global_iteration_ready:<n>              set when it is decided, to wake those who wait
global_iteration_ready:<n>:as_before    the same, when everybody goes on as before: see `machine`
global_iteration_counter                its number, for people and tools; nobody obeys it
rank_<r>_last_iteration                 the iteration that a rank is done with: its arrival
heartbeat_<r>                           moves while the rank lives
incarnation_<r>                         how often the rank was started: its fencing token
global_iteration_silence                never set: to wait for, where a wakeup cannot be trusted
"""

WORLD = "global_iteration_world"
CONSENSUS = "global_iteration_barrier:consensus"
COUNTER = "global_iteration_counter"
SILENCE = "global_iteration_silence"


def arrived(iteration: int) -> str:
    return f"global_iteration_barrier:arrived:{iteration}"


def ready(iteration: int) -> str:
    return f"global_iteration_ready:{iteration}"


def ready_as_before(iteration: int) -> str:
    return f"global_iteration_ready:{iteration}:as_before"


def last_iteration(rank: int) -> str:
    return f"rank_{rank}_last_iteration"


def heartbeat(rank: int) -> str:
    return f"heartbeat_{rank}"


def incarnation(rank: int) -> str:
    return f"incarnation_{rank}"
