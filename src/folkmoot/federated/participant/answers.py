"""What a coordinator answers, checked before anything is done with it.

A seal says whose answer it is, not that it makes sense: a coordinator's owner may want to harm.
So every value has a type, a range and a use here, and one that does not fit ends our part with a
sentence. docs/federation.md has the list of them all.
"""

from typing import Any, NamedTuple

import msgspec

from folkmoot.federated import wire
from folkmoot.federated.compression.codec import Compression
from folkmoot.federated.names import CARRIED, is_participant_id, plain_text
from folkmoot.host.signing import SESSION_BYTES

DIGEST_BYTES = 32
MOST_SETTINGS = 65_536
MOST_ROUND = 2**31 - 2
#: Seconds between heartbeats: more often is a burden, and less often nobody needs.
SHORTEST, LONGEST = 0.001, 86_400.0


class BadAnswer(ValueError):
    """The coordinator's answer makes no sense; the message says what is wrong with it."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise BadAnswer(f"the coordinator's answer cannot be used: {what}")


class Welcome(NamedTuple):
    """An answer to Rendezvous."""

    accepted: bool
    finished: bool
    participant_id: str
    session: bytes
    heartbeat: float
    bucket: str
    #: Of the coordinator's own host: where it carries weights, if it does.
    weights_port: int


def welcome(answer: Any, own_key: bytes, known_as: str) -> Welcome:
    """`known_as` is what we were called before, if we were: a name is for life."""
    id = answer.participant_id
    require(is_participant_id(id), f"{plain_text(id)!r} is no name for a participant")
    require(len(id) != 64 or id == own_key.hex(), "it calls us by somebody else's key")
    require(known_as in ("", id), f"we were {known_as!r} and are {id!r} now")
    require(len(answer.session) == SESSION_BYTES, f"a session has {SESSION_BYTES} bytes")
    require(answer.reply in (wire.ACCEPT, wire.LATER), f"reply {answer.reply} is unknown")
    require(answer.bucket.isprintable(), "the bucket's name cannot be shown")
    carries = answer.bucket == CARRIED
    require(carries <= (0 < answer.weights_port < 65_536), "no port for the weights it carries")
    heartbeat = min(max(answer.heartbeat_ms / 1000, SHORTEST), LONGEST)
    finished = _state(answer.state) == "FINISHED"
    accepted = answer.reply == wire.ACCEPT
    place = (answer.bucket, answer.weights_port)
    return Welcome(accepted, finished, id, answer.session, heartbeat, *place)


def heartbeat(answer: Any) -> tuple[str, int, bool]:
    """State, round, and whether our update is expected."""
    require(0 <= answer.round <= MOST_ROUND, f"there is no round {answer.round}")
    return _state(answer.state), answer.round, answer.expected


def task(answer: Any, round_: int, *, trained_before: bool) -> Any:
    """The task of a round that we were called to."""
    require(answer.round == round_, f"round {answer.round} was answered for round {round_}")
    require(answer.epochs >= 0 and answer.epoch_base >= 0, "epochs are not negative")
    if answer.initial:
        # Later on a participant's weights know its data.
        fresh = round_ == 0 and not trained_before and not answer.HasField("fixed_point")
        require(fresh, "first weights are asked for after the first round")
        return answer
    require(len(answer.global_digest) == DIGEST_BYTES, f"a digest has {DIGEST_BYTES} bytes")
    require(len(answer.global_stamp) in (0, DIGEST_BYTES), f"a stamp has {DIGEST_BYTES} bytes")
    require(bool(answer.get_url) == bool(answer.put_url), "signed URLs come in pairs")
    if answer.HasField("fixed_point"):
        _check_fixed_point(answer.fixed_point)
    return answer


def _check_fixed_point(rules: Any) -> None:
    """How an update is masked: numbers that a sum can be made with."""
    require(0 < rules.limit < 2.0**52, f"a limit of {rules.limit} is no limit")
    require(rules.fraction_bits <= 52, f"{rules.fraction_bits} bits are too many for a fraction")
    require(0 < rules.max_samples < 2**31, f"at most {rules.max_samples} samples makes no sense")
    clip, noise = rules.clip_norm, rules.noise_multiplier
    require(0 <= clip < 2.0**52 and 0 <= noise < 1e6, f"clip {clip} and noise {noise} are no norms")
    require((clip > 0) == (noise > 0), "a clip and its noise go together")


def _state(number: int) -> str:
    name = wire.STATE_NAME.get(number, "")
    require(name in ("STANDBY", "ROUND", "FINISHED"), f"state {number} is none of a coordinator's")
    return name


def settings(told: str) -> dict[str, bool | int | float | str]:
    """The settings of a round for us: for our owner's own code, as plain values."""
    require(len(told) <= MOST_SETTINGS, f"settings of {len(told)} bytes; at most {MOST_SETTINGS}")
    try:
        return msgspec.json.decode(told or "{}", type=dict[str, bool | int | float | str])
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadAnswer(f"the coordinator's settings cannot be used: {error}") from None


def compression(answer: Any) -> Compression | None:
    """In how few bytes our update should travel."""
    if not answer.HasField("compression"):
        return None
    told = answer.compression
    known = told.method in ("bf16", "int8", "top_k") and 0 < told.keep <= 1
    require(known, f"updates in {plain_text(told.method)!r} are unknown here")
    return Compression(method=told.method, keep=told.keep)
