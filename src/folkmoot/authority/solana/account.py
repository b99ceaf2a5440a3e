"""A coordinator account as the state of a run: the same value that the core computes."""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from folkmoot.authority.solana import layout
from folkmoot.authority.solana.subset import numbers
from folkmoot.core.bloom import bloom_bits
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator.assignment import Share, Span
from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.config import Run
from folkmoot.core.coordinator.impossible import impossible
from folkmoot.core.coordinator.machine import next_tick
from folkmoot.core.coordinator.state import (
    BEFORE_ROUNDS,
    VITAL,
    Checkpoint,
    Client,
    Coordinator,
    Epoch,
    Judged,
    Left,
    Pending,
    Phase,
    Progress,
    Round,
    Witness,
    bit,
    with_bits,
)
from folkmoot.core.registry import registry_of
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.plain_text import plain_text

Record = Any  # of numpy: its fields are by name


class AccountError(ValueError):
    """The account does not hold a run that this version can read; the message says why."""


def read(data: bytes) -> Record:
    """The account's record, checked to be one of this version."""
    if len(data) >= 12:
        magic, version = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:12], "little")
        if magic != layout.RUN_MAGIC:
            raise AccountError("the account does not hold a run")
        if version != layout.VERSION:
            raise AccountError(
                f"the account has version {version} of a run; this Folkmoot reads {layout.VERSION}"
            )
    if len(data) != layout.RUN.itemsize:
        raise AccountError(
            f"the account has {len(data)} bytes, not {layout.RUN.itemsize}:"
            " its creation did not end"
        )
    return np.frombuffer(data, layout.RUN)[0]


def state_of(run: Record) -> Coordinator:
    """The state of the run, whole; raises `AccountError`."""
    if run["phase"] == 0:
        raise AccountError(
            "the run has no configuration yet: its owner has not finished creating it"
        )
    try:
        state = Coordinator(
            run=_run(run),
            phase=Phase(layout.PHASES[run["phase"]]),
            phase_start=int(run["phase_start"]),
            epoch_number=int(run["epoch_number"]),
            progress=_progress(run["progress"]),
            epoch=_epoch(run),
            pending=registry_of([_pending(run, at) for at in _waiting(run)]),
            checkpoint=_checkpoint(run["checkpoint"]),
            model_hash=_hash(run),
            pause_wanted=bool(run["pause_wanted"]),
            expelled=tuple(_ids(run)),
            last_epoch=int(run["last_epoch"]),
        )
        if wrong := impossible(state):
            raise ValueError(wrong)
        next_tick(state, state.phase_start)  # what cannot be computed with is no state
    except AccountError:
        raise
    except (LookupError, ValueError, struct.error) as error:
        raise AccountError(f"the account is damaged: {error}") from error
    return state


def _count(number: int, most: int) -> int:
    """How many of a list are used. Who shows the account may have made it up."""
    if number > most:
        raise IndexError(f"{number} where {most} is most")
    return int(number)


def pending(run: Record) -> Iterator[Record]:
    """The slots of those who wait."""
    return (run["slots"][at] for at in _waiting(run))


def _waiting(run: Record) -> Record:
    return run["pending"][: run["pending_count"]]


def client_slots(run: Record) -> Iterator[Record]:
    """The slots of the epoch's clients, by place."""
    return (run["slots"][at] for at in run["epoch"]["clients"][: run["epoch"]["client_count"]])


def slot_of(run: Record, identity: bytes) -> Record | None:
    """A client's slot, whether it waits or takes part and has not left."""
    left = run["epoch"]["left"]
    here = (slot for place, slot in enumerate(client_slots(run)) if not left[place])
    everybody = (slot for slots in (here, pending(run)) for slot in slots)
    return next((slot for slot in everybody if slot["id"].tobytes() == identity), None)


def _run(run: Record) -> Run:
    config = run["config"]
    file = run["run"][: config["run_len"]].tobytes()
    name = run["run_id"][: run["run_id_len"]].tobytes()
    return _described(file, config.tobytes(), int(config["points_per_epoch"]), name)


@lru_cache(4)  # it changes with an update, and is asked for with every change of the state
def _described(file: bytes, config: bytes, points_per_epoch: int, name: bytes) -> Run:
    try:
        described = msgspec.msgpack.decode(file, type=Run)
    except UNREADABLE as error:
        raise AccountError(f"this version cannot read the run's configuration: {error}") from error
    if (
        numbers(described, points_per_epoch).tobytes() != config
        or described.run_id.encode() != name
    ):
        raise AccountError(
            "the run's configuration is not what the program computes with:"
            " its owner must update it with this version of Folkmoot"
        )
    if broken := next(all_broken(described), None):
        reason = plain_text(f"{broken.field} {broken.reason}")
        raise AccountError(f"it tells a run that cannot be: {reason}")
    return described


def _hash(record: Record) -> bytes:
    return bytes(record["model_hash"].tobytes()) if record["has_model"] else b""


def _ids(run: Record) -> Iterator[bytes]:
    data = run["expelled"].tobytes()
    count = _count(run["expelled_count"], layout.EXPELLED)
    return (data[at * 32 : at * 32 + 32] for at in range(count))


def _spans(spans: Record, count: int) -> Share:
    return tuple(Span(int(s["start"]), int(s["stop"])) for s in spans[:count])


def _progress(p: Record) -> Progress:
    owed = _spans(p["owed"], p["owed_count"])
    return Progress(int(p["step"]), int(p["data_index"]), owed, int(p["tokens"]))


def _checkpoint(c: Record) -> Checkpoint:
    location = c["location"][: c["location_len"]].tobytes().decode()
    source = layout.SOURCES[c["source"]]
    return Checkpoint(source, location, _hash(c), _progress(c["progress"]))


def _address(slot: Record) -> bytes:
    return bytes(slot["address"][: slot["address_len"]].tobytes())


def _pending(run: Record, at: int) -> Pending:
    slot, proven = run["slots"][at], bit(run["proven"].tobytes(), int(at))
    seen, speed = int(slot["seen"]), int(slot["speed"])
    return Pending(slot["id"].tobytes(), seen, _address(slot), speed, _hash(slot), proven)


def places(mask: Record) -> tuple[int, ...]:
    """The places in a mask, in order."""
    bits = np.unpackbits(np.asarray(mask, np.uint8), bitorder="little")
    return tuple(np.flatnonzero(bits).tolist())


def _election(e: Record) -> Round:
    height = BEFORE_ROUNDS if e["height"] == layout.BEFORE_ROUNDS else int(e["height"])
    return Round(height, int(e["step"]), int(e["seed"]), absent=places(e["absent"]))


def _witness(witness: Record, size: int) -> Witness:
    return Witness(
        WitnessProof(int(witness["position"]), int(witness["index"]), True),
        witness["participant"][:size].tobytes(),
        witness["broadcast"][:size].tobytes(),
        witness["merkle"].tobytes(),
        witness["model_hash"].tobytes(),
    )


def _round(r: Record, clients: int) -> Round:
    election = r["election"]
    weights = r["weights"][: election["size"]].tobytes() if r["weighted"] else b""
    size = bloom_bits(clients) // 8
    witnesses = tuple(_witness(w, size) for w in r["witnesses"][: r["witness_count"]])
    return msgspec.structs.replace(
        _election(election),
        spans=_spans(r["spans"], r["span_count"]),
        weights=weights,
        witnesses=witnesses,
        void=places(r["void_places"]),
    )


def _rounds(epoch: Record) -> tuple[Round, ...]:
    begun, clients = int(epoch["round_count"]), int(epoch["client_count"])
    heights = range(max(0, begun - layout.ROUNDS), begun)
    return tuple(_round(epoch["rounds"][h % layout.ROUNDS], clients) for h in heights)


def _called(epoch: Record, election: Record, said: str) -> tuple[tuple[int, tuple[int, ...]], ...]:
    masks = epoch[said].reshape(layout.WITNESSES, layout.MASK)
    callers = (p for p in range(layout.WITNESSES) if int(epoch["callers"]) >> p & 1)
    return tuple(sorted((int(election["elected"][p]), places(masks[p])) for p in callers))


def _epoch(run: Record) -> Epoch:
    epoch = run["epoch"]
    count = _count(epoch["client_count"], layout.CLIENTS)
    if count == 0:
        return Epoch()
    started = int(epoch["started"])
    slots, left = list(client_slots(run)), epoch["left"]
    clients = tuple(
        Client(s["id"].tobytes(), _address(s), _hash(s), layout.LEFT[left[place]])
        for place, s in enumerate(slots)
    )
    vitals = b"".join(VITAL.pack(int(s["seen"]) - started, int(s["speed"])) for s in slots)
    election = epoch["warmup"] if run["phase"] == 2 else epoch["cooldown"]
    if run["phase"] in (3, 4):
        election = epoch["rounds"][(int(epoch["round_count"]) - 1) % layout.ROUNDS]["election"]
    marks = epoch["leaving"][: epoch["leaving_count"]]
    judged = Judged(int(epoch["judged_height"]), places(epoch["unhealthy"]))
    return Epoch(
        clients=clients,
        started=started,
        absent=places(epoch["absent"]),
        ready=epoch["ready"][: (count + 7) // 8].tobytes(),
        proven=_proven(run),
        proven_ready=int(epoch["proven_ready"]),
        vitals=(vitals,),
        leaving=tuple((int(mark["place"]), _why(mark["why"])) for mark in marks),
        warmup=_election(epoch["warmup"]),
        called_gone=_called(epoch, election, "gone"),
        called_false=_called(epoch, election, "equivocated"),
        rounds=_rounds(epoch),
        last_height=int(epoch["last_height"]) if epoch["has_last"] else None,
        judged=judged if epoch["has_judged"] else None,
        agreed_height=int(epoch["agreed_height"]) if epoch["has_agreed"] else None,
        cooldown=_election(epoch["cooldown"]) if epoch["has_cooldown"] else None,
        checkpointed=bool(epoch["checkpointed"]),
    )


def _proven(run: Record) -> bytes:
    """The epoch's proven clients, by place; the account has them by slot."""
    count, column = int(run["epoch"]["client_count"]), run["proven"].tobytes()
    slots = run["epoch"]["clients"][:count].tolist()
    return with_bits(
        bytes((count + 7) // 8), (place for place, at in enumerate(slots) if bit(column, at))
    )


def _why(number: int) -> Left:
    left = layout.LEFT[number]
    if left is None:
        raise IndexError("a client leaves without a reason")
    return left
