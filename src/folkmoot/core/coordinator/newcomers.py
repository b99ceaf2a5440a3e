"""What newcomers may cost those who have proven themselves: anyone may come, nobody is crowded out.

Keys cost nothing, so a crowd of them says nothing. A client is proven once a quorum attested a
result of it; it stays so while it is there, and through an absence within one epoch, unless it
was there and did nothing. In a run that has proven clients, newcomers

- get at most half as many places in an epoch as these (`newcomers_percent`), so that these are a
  quorum without them; among those who wait they give way to proven ones;
- are waited for in Warmup, once these are ready, as long again and a twentieth of the last epoch.

Where nobody is proven yet all are alike, and the run's own limits decide. In every epoch the rounds
begin with those who are ready, if they are enough; and an epoch of which nobody was heard leaves
its places to others.
"""

from msgspec.structs import replace

from folkmoot.core.coordinator.state import Coordinator, Left, Pending, bit, with_bits
from folkmoot.core.shuffle import lcg_shuffle

# Of the time that the last epoch took: what newcomers may cost those who are ready.
PART_OF_EPOCH = 20
# A newcomer starts its process and loads a model, however short epochs are. Milliseconds.
GRACE = 5000
# Who leaves for these was there and did nothing; others may only have been cut off.
IDLE = (Left.NotReady, Left.Unhealthy, Left.SilentWitness)


def note_learnt(state: Coordinator, places: tuple[int, ...]) -> Coordinator:
    """Those whose results a quorum attested are proven."""
    proven = with_bits(state.epoch.proven, places)
    return replace(state, epoch=replace(state.epoch, proven=proven))


def note_heard(state: Coordinator, places: tuple[int, ...]) -> Coordinator:
    """Too few witnesses were heard to attest anything. If nobody of them is proven they are now:
    they did what could be done, and the silent, who are more, come back as newcomers."""
    if any(bit(state.epoch.proven, place) for place in places):
        return state
    return note_learnt(state, places)


def is_proven(state: Coordinator, identity: bytes) -> bool:
    """Whether a client that joins has worked in this epoch, and left for no idleness."""
    place = state.find(identity)
    if place is None:
        return False
    return bit(state.epoch.proven, place) and state.epoch.clients[place].left not in IDLE


def gives_way(state: Coordinator) -> Pending | None:
    """Of those who wait, one whose place a proven client may have."""
    return next((p for p in state.pending if not p.proven), None)


def choose(state: Coordinator, seed: int) -> list[Pending]:
    """Those who wait, in the order of their ids; when there are too many, as the seed has it.

    Proven clients come first, then whoever holds the newest model: newcomers must not crowd out
    the clients that have it, and an identity made to sort low gains nothing.
    """
    waiting, places = list(state.pending), state.run.config.max_clients
    proven = min(sum(p.proven for p in waiting), places)
    if proven:
        places = min(places, proven + _places_beside(state, proven))
    if len(waiting) <= places:
        return waiting
    order = lcg_shuffle(len(waiting), seed)
    newest = state.model_hash
    order.sort(key=lambda at: (not waiting[at].proven, waiting[at].model_hash != newest))
    return [waiting[at] for at in sorted(order[:places])]


def _places_beside(state: Coordinator, proven: int) -> int:
    """How many newcomers an epoch may have; one at least, or the run could never grow."""
    config = state.run.config
    percent = config.newcomers_percent
    if not percent:
        return config.max_clients
    return max(proven * percent // 100, config.clients_to_begin - proven, 1)


def warmup_limit(state: Coordinator) -> float:
    """How long Warmup may last, in seconds: proven clients that are ready wait less."""
    config, epoch = state.run.config, state.epoch
    # As numbers: it is asked at every event, and there may be ten thousand clients.
    proven = int.from_bytes(epoch.proven, "little") & ~sum(1 << place for place in epoch.absent)
    if proven.bit_count() < config.clients_to_begin:
        return config.warmup_time
    if proven & ~int.from_bytes(epoch.ready, "little"):
        return config.warmup_time
    patience = 2 * epoch.proven_ready + max(GRACE, state.last_epoch // PART_OF_EPOCH)
    return min(config.warmup_time, patience / 1000)


def unready(state: Coordinator) -> list[tuple[int, Left]]:
    """Who leaves as the rounds begin; nobody where those who are ready are too few."""
    epoch = state.epoch
    here = [place for place, client in enumerate(epoch.clients) if not client.left]
    late = [place for place in here if not bit(epoch.ready, place)]
    if len(here) - len(late) < state.run.config.min_clients:
        return []
    return [(place, Left.NotReady) for place in late]
