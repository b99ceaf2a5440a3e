"""Messages as instructions of the program, and the accounts that each needs.

Clients are named by their place in the epoch, not by their keys: sixteen times shorter, so that a
message fits a transaction.
"""

from hashlib import sha256
from typing import Any

import numpy as np
from solders.instruction import AccountMeta, Instruction
from solders.pubkey import Pubkey

from folkmoot.authority.solana import layout
from folkmoot.authority.solana.layout import Tag
from folkmoot.authority.solana.subset import numbers, put_bytes
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.machine import encode
from folkmoot.core.coordinator.receive import SPEED_MAX
from folkmoot.core.coordinator.state import BEFORE_ROUNDS

PROGRAM_ID = Pubkey(sha256(b"folkmoot coordinator on a local network").digest())
"""Where the program is on every localnet; elsewhere the run's url says it."""
SYSTEM = Pubkey.default()
PIECE = 800  # bytes of a run's file in one transaction
U64 = 2**64 - 1


def coordinator_address(program: Pubkey, run_id: str) -> Pubkey:
    seeds = [layout.COORDINATOR_SEED, sha256(run_id.encode()).digest()]
    return Pubkey.find_program_address(seeds, program)[0]


def grant_address(program: Pubkey, coordinator: Pubkey, grantee: Pubkey) -> Pubkey:
    seeds = [layout.GRANT_SEED, bytes(coordinator), bytes(grantee)]
    return Pubkey.find_program_address(seeds, program)[0]


def said(tag: Tag, more: bytes = b"", **fields: Any) -> bytes:
    """The bytes of an instruction; a field of bytes is filled from its beginning."""
    made = np.zeros((), layout.INSTRUCTIONS[tag])
    made["tag"] = tag
    for name, value in fields.items():
        if isinstance(value, bytes):
            put_bytes(made, name, value)
        else:
            made[name] = value
    return bytes(made.tobytes()) + more


def spoken(message: m.AnyEvent, state: Coordinator, salt: int, reveal: bytes) -> bytes:
    """A client's or owner's message as an instruction; `reveal` goes with a join or a proof."""
    match message:
        case m.Join():
            return said(
                Tag.JoinRun,
                message.address,
                salt=salt,
                reveal=reveal,
                model_hash=message.model_hash[:32],
                has_model=bool(message.model_hash),
                address_len=len(message.address),
            )
        case m.Ready():
            return said(Tag.WarmupReady, epoch=_u64(message.epoch))
        case m.OpportunisticWitness():
            return _witness(message, reveal)
        case m.HealthCheck():
            accused = _places(state, message.unhealthy)
            speed = min(max(message.tokens_per_second, 0), SPEED_MAX)
            count = len(message.unhealthy)
            return said(Tag.HealthCheck, accused, speed=speed, count=count)
        case m.OpportunisticCooldown():
            location = message.location.encode()
            return said(
                Tag.Checkpoint,
                location,
                epoch=_u64(message.epoch),
                model_hash=message.model_hash[:32],
                has_model=bool(message.model_hash),
                location_len=len(location),
            )
        case m.CallGone():
            gone = _places(state, message.gone)
            false = _places(state, message.equivocated)
            return said(
                Tag.CallGone,
                gone + false,
                epoch=_u64(message.epoch),
                height=_height(message.height),
                gone_count=len(message.gone),
                equivocated_count=len(message.equivocated),
            )
        case m.Withdraw():
            return said(Tag.Withdraw)
        case m.Pause():
            return said(Tag.SetPaused, paused=1)
        case m.Resume():
            return said(Tag.SetPaused, paused=0)
        case m.Tick():
            return said(Tag.Tick)
    raise TypeError(f"a {type(message).__name__} is not one instruction")


def drafts(run: Run) -> list[bytes]:
    """The instructions that bring a run's file into the account."""
    file = encode(run)
    return [said(Tag.Draft, file[at : at + PIECE], offset=at) for at in range(0, len(file), PIECE)]


def update(run: Run, points_per_epoch: int) -> bytes:
    """What takes the drafted file as the run's configuration."""
    return said(Tag.Update, config=numbers(run, points_per_epoch))


def instruction(
    program: Pubkey, data: bytes, signer: Pubkey, coordinator: Pubkey, *more: Pubkey
) -> Instruction:
    """An instruction with its accounts: who signs, the coordinator, then what else it needs."""
    metas = [AccountMeta(signer, True, True), AccountMeta(coordinator, False, True)]
    metas += [AccountMeta(key, False, key != SYSTEM) for key in more]
    return Instruction(program, data, metas)


def _witness(message: m.OpportunisticWitness, reveal: bytes) -> bytes:
    proof = message.proof
    return said(
        Tag.Witness,
        message.participant_bloom + message.broadcast_bloom,
        epoch=_u64(message.epoch),
        height=_u64(message.height),
        position=_u64(proof.position),
        index=_u64(proof.index),
        elected=int(proof.witness),
        reveal=reveal,
        merkle=message.broadcast_merkle,
        model_hash=message.model_hash,
        participant_len=len(message.participant_bloom),
        broadcast_len=len(message.broadcast_bloom),
    )


def _places(state: Coordinator, names: tuple[bytes, ...]) -> bytes:
    found = (state.find(name) for name in names)
    numbers_ = [layout.UNKNOWN_PLACE if place is None else place for place in found]
    return np.array(numbers_, "<u2").tobytes()


def _height(height: int) -> int:
    """Of what a witness speaks of: a round, or Warmup or Cooldown."""
    if height == BEFORE_ROUNDS:
        return layout.BEFORE_ROUNDS
    return U64 if height == layout.BEFORE_ROUNDS else _u64(height)


def _u64(number: int) -> int:
    """What no number of the program can be becomes one that none is."""
    return number if 0 <= number < U64 else U64
