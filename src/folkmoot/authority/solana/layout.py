"""What lies where in the program's accounts and instructions: the one description of both.

The C header is made from it (`header.py`), and Python reads accounts and writes instructions with
it. Everything is little-endian, naturally aligned and without holes; a list has a fixed number of
places and a count beside it; a set of clients is a mask of 256 bits. `VERSION` changes with it.

    coordinator account   PDA of ("coordinator", sha256(run_id)), one `Run`
    grant account         PDA of ("grant", coordinator, client), one `Grant`; it exists while the
                          client may join a run that is not open
"""

from enum import IntEnum
from typing import Any

import numpy as np

from folkmoot.core.coordinator.messages import Reason
from folkmoot.core.coordinator.state import CheckpointSource, Left, Phase

VERSION = 1
RUN_MAGIC = int.from_bytes(b"folkmoot", "little")
GRANT_MAGIC = int.from_bytes(b"fm grant", "little")
COORDINATOR_SEED, GRANT_SEED = b"coordinator", b"grant"

# The subset of the core that fits an account and a transaction.
CLIENTS = 256  # of an epoch; as many again may wait for the next
SLOTS = 2 * CLIENTS
WITNESSES = 32
ROUNDS = 4
OWED = 64  # spans of owed samples; what would be more is joined with what lies between
SPANS = OWED + 1
EXPELLED = 128
LEAVING = 3 * CLIENTS
ADDRESS = 256
ROOT = 190  # bytes of model.checkpoint, so that root/name fits a location
LOCATION = 256
BLOOM = 312  # bytes of a filter for 256 clients
RUN_ID = 64
RUN_FILE = 4096  # bytes of a run as msgpack
NAMED = 64  # clients that one message may name
GROWTH = 10_240  # bytes that an account may grow by in one instruction
MASK = CLIENTS // 8
UNKNOWN_PLACE = 0xFFFF
BEFORE_ROUNDS = 0xFFFF_FFFF  # the height that stands for Warmup

# Numbers of the core's words; a new word of the core gets its number when the program knows it.
PHASES = (
    "",  # no configuration yet
    Phase.WaitingForMembers, Phase.Warmup, Phase.RoundTrain, Phase.RoundWitness, Phase.Cooldown,
    Phase.Finished, Phase.Paused,
)  # fmt: skip
SOURCES = (CheckpointSource.Ephemeral, CheckpointSource.Stored, CheckpointSource.P2P)
LEFT = (
    None, Left.Withdrew, Left.Gone, Left.Equivocated, Left.Silent, Left.Unhealthy,
    Left.SilentWitness, Left.NotReady,
)  # fmt: skip

Fields = dict[str, tuple[np.dtype[Any], int]]
RECORDS: dict[str, Fields] = {}
_NUMBERS = {"u1": "u8", "u2": "u16", "u4": "u32", "u8": "u64"}


def record(name: str, *fields: tuple[Any, ...]) -> np.dtype[Any]:
    """A named record of (field, type) and (field, type, count); it must not have holes."""
    described: list[Any] = []
    for field, kind, *count in fields:
        of = np.dtype(f"<{kind}") if isinstance(kind, str) else kind
        described.append((field, of, (count[0],)) if count else (field, of))
    packed, aligned = np.dtype(described), np.dtype(described, align=True)
    if packed.itemsize != aligned.itemsize:
        raise ValueError(f"{name} has holes: {packed.itemsize} bytes, aligned {aligned.itemsize}")
    RECORDS[name] = {
        field: (np.dtype(f"<{kind}") if isinstance(kind, str) else kind, count[0] if count else 0)
        for field, kind, *count in fields
    }
    _NAMES[aligned] = name
    return aligned


_NAMES: dict[Any, str] = {}


def c_type(kind: np.dtype[Any]) -> str:
    return _NAMES[kind] if kind.names else _NUMBERS[kind.str[1:]]


SPAN = record("Span", ("start", "u8"), ("stop", "u8"))
PROGRESS = record(
    "Progress",
    ("data_index", "u8"),
    ("tokens", "u8"),
    ("step", "u4"),
    ("owed_count", "u4"),
    ("owed", SPAN, OWED),
)
CHECKPOINT = record(
    "Checkpoint",
    ("progress", PROGRESS),
    ("model_hash", "u1", 32),
    ("location", "u1", LOCATION),
    ("location_len", "u4"),
    ("has_model", "u2"),
    ("source", "u2"),
)
# A client, whether it waits or is part of the epoch.
SLOT = record(
    "Slot",
    ("id", "u1", 32),
    ("reveal", "u1", 32),  # its hash chain: what it reveals next must hash to this
    ("model_hash", "u1", 32),
    ("item", "u8"),  # what stands for it in a witness's filter
    ("salt", "u8"),  # it made its hash chain with this
    ("seen", "u8"),
    ("points", "u8"),
    ("speed", "u4"),
    ("address_len", "u2"),
    ("has_model", "u1"),
    ("expelled", "u1"),
    ("address", "u1", ADDRESS),
)
# Who was there and who was elected: of a round, or of what stands for one in Warmup and Cooldown.
ELECTION = record(
    "Election",
    ("seed", "u8"),
    ("height", "u4"),
    ("step", "u4"),
    ("absent", "u1", MASK),
    ("elected", "u2", WITNESSES),  # roster index by position
    ("size", "u4"),  # of the roster
    ("elected_count", "u4"),
)
WITNESS = record(
    "Witness",
    ("participant", "u1", BLOOM),
    ("broadcast", "u1", BLOOM),
    ("merkle", "u1", 32),
    ("model_hash", "u1", 32),
    ("index", "u4"),
    ("position", "u4"),
)
ROUND = record(
    "Round",
    ("election", ELECTION),
    ("void_places", "u1", MASK),
    ("weights", "u2", CLIENTS),
    ("spans", SPAN, SPANS),
    ("span_count", "u4"),
    ("weighted", "u2"),
    ("witness_count", "u2"),
    ("witnesses", WITNESS, WITNESSES),
)
MARK = record("Mark", ("place", "u1"), ("why", "u1"))
EPOCH = record(
    "Epoch",
    ("started", "u8"),
    ("proven_ready", "u8"),
    ("client_count", "u4"),
    ("absent_count", "u4"),
    ("clients", "u2", CLIENTS),  # slots, in the order of the ids
    ("left", "u1", CLIENTS),
    ("absent", "u1", MASK),
    ("ready", "u1", MASK),
    ("leaving", MARK, LEAVING),
    ("leaving_count", "u4"),
    ("callers", "u4"),  # elected positions that called somebody gone
    ("gone", "u1", MASK * WITNESSES),
    ("equivocated", "u1", MASK * WITNESSES),
    ("score", "u1", CLIENTS),  # by place: witnesses of the newest round that saw its result
    ("unhealthy", "u1", MASK),  # of the last judged round
    ("warmup", ELECTION),
    ("cooldown", ELECTION),
    ("judged_height", "u4"),
    ("agreed_height", "u4"),
    ("last_height", "u4"),
    ("has_judged", "u1"),
    ("has_agreed", "u1"),
    ("has_last", "u1"),
    ("has_cooldown", "u1"),
    ("checkpointed", "u4"),
    ("round_count", "u4"),  # rounds begun; the newest has this height less one
    ("rounds", ROUND, ROUNDS),  # the round of height h is at h % ROUNDS
)
CONFIG = record(
    "Config",
    # Milliseconds.
    ("waiting_time", "u8"),
    ("warmup_time", "u8"),
    ("train_time", "u8"),
    ("witness_time", "u8"),
    ("cooldown_time", "u8"),
    ("epoch_time", "u8"),
    ("health_timeout", "u8"),
    ("warmup_tokens", "u8"),
    ("newcomers_percent", "u8"),
    ("points_per_epoch", "u8"),  # shared by the healthy clients that finish an epoch
    ("total_steps", "u4"),
    ("rounds_per_epoch", "u4"),  # 0: by time
    ("batch_start", "u4"),
    ("batch_end", "u4"),
    ("max_seq_len", "u4"),
    ("min_clients", "u4"),
    ("clients_to_begin", "u4"),
    ("max_clients", "u4"),
    ("witness_nodes", "u4"),
    ("delay", "u4"),
    ("work_by_speed", "u4"),
    ("root_len", "u4"),
    ("start_len", "u4"),
    ("run_len", "u4"),
    ("made_of", "u1", 32),  # hash of what stays once the model was trained
    ("computed_with", "u1", 32),  # hash of what members compute with
    ("run_hash", "u1", 32),  # of the run's file
    ("root", "u1", ROOT + 2),
    ("start", "u1", LOCATION),
)
RUN = record(
    "Run",
    ("magic", "u8"),
    ("version", "u4"),
    ("phase", "u4"),
    ("sequence", "u8"),  # counts instructions that changed anything
    ("phase_start", "u8"),
    ("authority", "u1", 32),
    ("join_authority", "u1", 32),
    ("run_id", "u1", RUN_ID),
    ("run_id_len", "u4"),
    ("open", "u2"),  # whether anyone may join
    ("pause_wanted", "u2"),
    ("mix", "u1", 32),  # what witnesses revealed, all together
    ("model_hash", "u1", 32),
    ("has_model", "u4"),
    ("epoch_number", "u4"),
    ("config", CONFIG),
    ("progress", PROGRESS),
    ("checkpoint", CHECKPOINT),
    ("expelled_count", "u4"),
    ("pending_count", "u4"),
    ("pending", "u2", SLOTS),  # slots, in the order of the ids
    ("used", "u1", SLOTS // 8),
    ("proven", "u1", SLOTS // 8),  # slots of clients whose results were attested
    ("last_epoch", "u8"),  # milliseconds from Warmup to Cooldown
    ("expelled", "u1", 32 * EXPELLED),
    ("epoch", EPOCH),
    ("run", "u1", RUN_FILE),
    ("draft", "u1", RUN_FILE),  # of the run's file, until an update takes it
    ("slots", SLOT, SLOTS),
)
GRANT = record(
    "Grant",
    ("magic", "u8"),
    ("version", "u8"),
    ("coordinator", "u1", 32),
    ("grantee", "u1", 32),
)
GROWN = (*range(GROWTH, RUN.itemsize, GROWTH), RUN.itemsize)
"""The sizes that the coordinator account has one after the other."""


class Tag(IntEnum):
    """The first eight bytes of an instruction. Its record follows, then bytes without a name."""

    InitCoordinator = 0
    Grow = 1
    Draft = 2
    Update = 3
    SetPaused = 4
    Authorize = 5
    Revoke = 6
    FreeCoordinator = 7
    JoinRun = 8
    Tick = 9
    WarmupReady = 10
    Witness = 11
    HealthCheck = 12
    Checkpoint = 13
    CallGone = 14
    Withdraw = 15


_TAG = ("tag", "u8")
INSTRUCTIONS: dict[Tag, np.dtype[Any]] = {
    # Accounts: payer (signs), coordinator, system program; becomes the run's owner.
    Tag.InitCoordinator: record(
        "InitCoordinator",
        _TAG,
        ("lamports", "u8"),
        ("join_authority", "u1", 32),
        ("open", "u8"),
    ),  # then the run_id
    # Accounts of Grow, Draft, Update, SetPaused: owner (signs), coordinator.
    Tag.Grow: record("Grow", _TAG),
    Tag.Draft: record("Draft", _TAG, ("offset", "u8")),  # then a piece of the run's file
    Tag.Update: record("Update", _TAG, ("config", CONFIG)),
    Tag.SetPaused: record("SetPaused", _TAG, ("paused", "u8")),
    # Accounts: join authority (signs), coordinator, grant, system program.
    Tag.Authorize: record("Authorize", _TAG, ("grantee", "u1", 32)),
    # Accounts: join authority (signs, is paid), coordinator, grant.
    Tag.Revoke: record("Revoke", _TAG),
    # Accounts: owner (signs, is paid), coordinator.
    Tag.FreeCoordinator: record("FreeCoordinator", _TAG),
    # Accounts: client (signs), coordinator, and a grant unless the run is open.
    Tag.JoinRun: record(
        "JoinRun",
        _TAG,
        ("salt", "u8"),
        ("reveal", "u1", 32),
        ("model_hash", "u1", 32),
        ("has_model", "u4"),
        ("address_len", "u4"),
    ),  # then the address
    # Accounts of all that follow: who speaks (signs), coordinator.
    Tag.Tick: record("Tick", _TAG),
    Tag.WarmupReady: record("WarmupReady", _TAG, ("epoch", "u8")),
    Tag.Witness: record(
        "WitnessSaid",
        _TAG,
        ("epoch", "u8"),
        ("height", "u8"),
        ("position", "u8"),
        ("index", "u8"),
        ("reveal", "u1", 32),
        ("merkle", "u1", 32),
        ("model_hash", "u1", 32),
        ("elected", "u4"),
        ("participant_len", "u2"),
        ("broadcast_len", "u2"),
    ),  # then both filters
    Tag.HealthCheck: record("HealthCheck", _TAG, ("speed", "u4"), ("count", "u4")),  # then places
    Tag.Checkpoint: record(
        "CheckpointSaid",
        _TAG,
        ("epoch", "u8"),
        ("model_hash", "u1", 32),
        ("has_model", "u4"),
        ("location_len", "u4"),
    ),  # then the location
    Tag.CallGone: record(
        "CallGone",
        _TAG,
        ("epoch", "u8"),
        ("height", "u8"),
        ("gone_count", "u4"),
        ("equivocated_count", "u4"),
    ),  # then the places of both
    Tag.Withdraw: record("Withdraw", _TAG),
}

# A refusal is a custom error of the transaction: a reason of the core, or one of the program.
REASONS: dict[str, int] = {reason: 100 + at for at, reason in enumerate((
    "WrongId", "WrongAddress", "WrongRun", "AlreadyMember", "RunFull", "Finished", "NotAMember",
    "WrongIndex", "WrongState", "WrongEpoch", "WrongRound", "Duplicate", "NotAWitness",
    "WrongProof", "WrongBloom", "FullBloom", "WrongHash", "HealthyClient", "NotACheckpointer",
    "WrongModel", "WrongLocation", "NotHalted", "Trained", "AlreadyPausing", "NotPausing",
    "BadConfig", "Expelled", "UnknownClient", "Ejected", "WrongScreening", "WrongAudit",
))}  # fmt: skip
_SENTENCES = {
    "BadInstruction": "the program knows no such instruction, or its bytes are too few or too many",
    "TooFewAccounts": "the transaction names fewer accounts than the instruction needs",
    "TooManyAccounts": "the transaction names more accounts than any instruction needs",
    "NotSigned": "the account that must sign did not",
    "NotWritable": "the coordinator account is not passed as writable",
    "WrongOwner": "the account does not belong to the program",
    "WrongAddressOfAccount": "the account is not at the address that the program derives for it",
    "WrongSize": "the account does not have the size that this version of the program uses",
    "WrongVersion": "the account was made by another version of the program",
    "AlreadyThere": "the account exists already",
    "NotTheOwner": "only the run's owner may do that",
    "NotTheJoinAuthority": "only the run's join authority may do that",
    "NotGranted": "the run is not open, and its join authority has not granted this key to join",
    "WrongGrant": "the grant is for another run or another key",
    "NotConfigured": "the run has no configuration yet: its owner sends `update` first",
    "NothingDue": "nothing is due: the tick comes too early, or somebody else ticked",
    "WrongReveal": "what it reveals is not what its sender committed itself to",
    "DraftDiffers": "the run's file in the account is not the one that the update names",
    "StillRunning": "the run must be paused or finished, or nobody there, before it is closed",
    "NoSystemProgram": "the system program is not among the accounts",
}
ERRORS: dict[str, tuple[int, str]] = {
    name: (200 + at, sentence) for at, (name, sentence) in enumerate(_SENTENCES.items())
}


def explain(code: int) -> tuple[str, str]:
    """(name, sentence) of a custom error."""
    for name, number in REASONS.items():
        if number == code:
            return name, str(Reason[name].value)
    for name, (number, sentence) in ERRORS.items():
        if number == code:
            return name, sentence
    return f"Error{code}", f"the program failed with error {code}, which this version does not know"
