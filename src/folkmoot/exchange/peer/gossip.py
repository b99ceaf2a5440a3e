"""Everyone hears everything: who sends which message to whom. Pure: time is an argument.

- A message travels down a tree that everybody computes from the members, its author and its round,
  so it crosses each edge once. Up to `direct` members the tree is a star: the author sends to all.
  A parent that is not connected to a child sends to that child's children instead.
- What the tree missed is repaired. When nothing new came for `quiet` seconds, neighbours compare
  one hash a round (`Digest`); of each pair the smaller key speaks first and an equal hash is not
  answered, so agreement costs one small frame a pair. Where hashes differ, they compare ids
  (`Have`) and ask for what they lack (`Want`), each message from one neighbour at a time.
- An author may have `quota_messages` and `quota_bytes` alive. Rounds below the floor are forgotten.
- Nothing is delivered twice. A message from a non-member is not delivered and not passed on.
"""

import math
from collections.abc import Callable, Iterable

import msgspec
from blake3 import blake3

from folkmoot.exchange.peer.message import GossipMessage, peek_id
from folkmoot.exchange.peer.tree import children
from folkmoot.exchange.peer.wire import ID_BYTES, Digest, Frame, Gossip, Have, Want

TOO_MANY = "its author has too many messages alive"


class Limits(msgspec.Struct, frozen=True):
    """Of what one author and one neighbour may cost."""

    direct: int = 12
    fanout: int = 6
    quiet: float = 0.5
    patience: float = 3.0
    """How long a neighbour may take to send a message it was asked for, before another is asked."""
    quota_messages: int = 64
    quota_bytes: int = 8 << 20
    wanted: int = 4096
    have_ids: int = 4096


class Send(msgspec.Struct, frozen=True):
    to: bytes
    frame: Frame


class Deliver(msgspec.Struct, frozen=True):
    message: GossipMessage


class Blame(msgspec.Struct, frozen=True):
    """A neighbour broke the rules: hang up on it."""

    peer: bytes
    reason: str


class Discard(msgspec.Struct, frozen=True):
    """A message was not taken; nobody is to blame for certain."""

    peer: bytes
    reason: str


Effect = Send | Deliver | Blame | Discard


class _Neighbour:
    """What we know that a connected member knows."""

    def __init__(self, now: float) -> None:
        # By round: the digest we told it, or it told us and was ours.
        self.agreed: dict[int, bytes] = {}
        self.stale_since: float | None = now  # since when it may not know what we hold
        self.sent: set[bytes] = set()  # ids that crossed this connection, either way


class _Asked:
    """A message we lack: who claims to have it, and until when the one we asked may take."""

    def __init__(self, round_: int) -> None:
        self.round = round_
        self.claims: list[bytes] = []
        self.asked: bytes | None = None
        self.until = 0.0


class GossipNode:
    """The gossip of one member."""

    def __init__(
        self, me: bytes, unseal: Callable[[bytes], GossipMessage], limits: Limits | None = None
    ) -> None:
        self.me = me
        self.limits = limits or Limits()
        self.floor = 0
        self._unseal = unseal
        self._members: tuple[bytes, ...] = ()
        self._left: dict[bytes, int] = {}  # former member: the last round it may speak on
        self._refused: dict[bytes, int] = {}  # id: round, of messages not worth asking for again
        self._neighbours: dict[bytes, _Neighbour] = {}
        self._rounds: dict[int, dict[bytes, GossipMessage]] = {}
        self._digests: dict[int, bytes] = {}
        self._used: dict[bytes, list[int]] = {}  # author: [messages, bytes] alive
        self._asked: dict[bytes, _Asked] = {}  # id: a message we lack
        self._changed_at = 0.0

    # What the shell tells us.

    def members(self, ids: Iterable[bytes]) -> None:
        """Who may speak. One who left is still heard on rounds that had begun."""
        members = tuple(sorted({*ids, self.me}))
        newest = max(self._rounds, default=self.floor)
        self._left |= {id_: newest for id_ in self._members if id_ not in members}
        self._left = {i: r for i, r in self._left.items() if i not in members and r >= self.floor}
        self._members = members

    def connected(self, peer: bytes, now: float) -> None:
        """A fresh connection: nothing is assumed of what it holds."""
        self._neighbours[peer] = _Neighbour(now)

    def disconnected(self, peer: bytes) -> None:
        self._neighbours.pop(peer, None)
        for asked in self._asked.values():
            if asked.asked == peer:
                asked.until = 0.0
            asked.claims = [claim for claim in asked.claims if claim != peer]

    def expire(self, before: int) -> None:
        """Forget rounds below `before`, and take nothing more for them."""
        self.floor = max(self.floor, before)
        for round_ in [r for r in self._rounds if r < self.floor]:
            for message in self._rounds.pop(round_).values():
                self._charge(message, -1)
                for neighbour in self._neighbours.values():
                    neighbour.sent.discard(message.id)
            self._digests.pop(round_, None)
        for neighbour in self._neighbours.values():
            neighbour.agreed = {r: d for r, d in neighbour.agreed.items() if r >= self.floor}
        self._asked = {i: a for i, a in self._asked.items() if a.round >= self.floor}
        self._refused = {i: r for i, r in self._refused.items() if r >= self.floor}

    def publish(self, message: GossipMessage, now: float) -> list[Effect]:
        """Send a message of our own."""
        self._keep(message, now)
        return self._pass_on(message, None)

    def receive(self, peer: bytes, frame: Frame, now: float) -> list[Effect]:
        """What a neighbour's frame leads to."""
        if peer not in self._neighbours:
            return []
        match frame:
            case Gossip(sealed):
                return self._take(peer, sealed, now)
            case Digest(rounds):
                return self._compare(peer, rounds)
            case Have():
                return self._learn(peer, frame, now)
            case Want(ids):
                return self._give(peer, ids)
            case _:
                return [Blame(peer, f"it sent {type(frame).__name__} where gossip was expected")]

    # Time.

    def due(self) -> float | None:
        """When `tick` has something to do, if ever."""
        times = [asked.until for asked in self._asked.values()]
        if self._rounds:
            times += [self._tell_at(*item) for item in self._neighbours.items()]
        first = min(times, default=math.inf)
        return None if first == math.inf else first

    def tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for peer, neighbour in self._neighbours.items():
            if now >= self._tell_at(peer, neighbour):
                neighbour.stale_since = None
                if untold := self._untold(neighbour):
                    neighbour.agreed.update(untold)
                    newest = sorted(untold.items(), reverse=True)[:256]
                    effects.append(Send(peer, Digest(tuple(newest))))
        late = [id_ for id_, asked in self._asked.items() if now >= asked.until]
        return effects + self._ask(late, now)

    def _tell_at(self, peer: bytes, neighbour: _Neighbour) -> float:
        """After a quiet moment, or four when it never is quiet; the larger key waits longer."""
        if neighbour.stale_since is None:
            return math.inf
        quiet = self.limits.quiet * (1.0 if self.me < peer else 2.0)
        since = max(self._changed_at, neighbour.stale_since)
        return min(since + quiet, neighbour.stale_since + 4 * quiet)

    def _untold(self, neighbour: _Neighbour) -> dict[int, bytes]:
        digests = {r: self._digest(r) for r in self._rounds}
        return {r: digest for r, digest in digests.items() if neighbour.agreed.get(r) != digest}

    # Messages.

    def _take(self, peer: bytes, sealed: bytes, now: float) -> list[Effect]:
        neighbour = self._neighbours[peer]
        id_ = peek_id(sealed)
        neighbour.sent.add(id_)
        if self._holds(id_):
            return []
        message = self._unseal(sealed)
        self._asked.pop(id_, None)
        if why := self._refusal(message):
            neighbour.sent.discard(id_)
            if len(self._refused) < self.limits.wanted:
                self._refused[id_] = message.round
            flood = why == TOO_MANY and peer == message.origin
            return [Blame(peer, why) if flood else Discard(peer, why)]
        self._keep(message, now)
        return [Deliver(message), *self._pass_on(message, peer)]

    def _refusal(self, message: GossipMessage) -> str:
        if message.round < self.floor:
            return "its round is over"
        left = self._left.get(message.origin, -1)
        if message.origin not in self._members and message.round > left:
            return "its author is not a member"
        count, size = self._used.get(message.origin, (0, 0))
        over = size + len(message.sealed) > self.limits.quota_bytes
        if over or count >= self.limits.quota_messages:
            return TOO_MANY
        return ""

    def _keep(self, message: GossipMessage, now: float) -> None:
        self._rounds.setdefault(message.round, {})[message.id] = message
        self._digests.pop(message.round, None)
        self._charge(message, +1)
        self._changed_at = now
        for neighbour in self._neighbours.values():
            if neighbour.stale_since is None:
                neighbour.stale_since = now

    def _charge(self, message: GossipMessage, sign: int) -> None:
        used = self._used.setdefault(message.origin, [0, 0])
        used[0] += sign
        used[1] += sign * len(message.sealed)
        if not used[0]:
            del self._used[message.origin]

    def _pass_on(self, message: GossipMessage, came_from: bytes | None) -> list[Effect]:
        """To our children in the message's tree; past a child we cannot reach, to its children."""
        limits = self.limits
        fanout = limits.fanout if len(self._members) > limits.direct else len(self._members)
        effects: list[Effect] = []
        todo = children(self.me, message.origin, message.round, self._members, fanout)
        while todo:
            child = todo.pop()
            neighbour = self._neighbours.get(child)
            if neighbour is None:
                todo += children(child, message.origin, message.round, self._members, fanout)
            elif child != came_from and message.id not in neighbour.sent:
                neighbour.sent.add(message.id)
                effects.append(Send(child, Gossip(message.sealed)))
        return effects

    # Repair.

    def _digest(self, round_: int) -> bytes:
        if round_ not in self._digests:
            ids = b"".join(sorted(self._rounds.get(round_, {})))
            self._digests[round_] = blake3(ids).digest(ID_BYTES)
        return self._digests[round_]

    def _holds(self, id_: bytes) -> bool:
        return any(id_ in messages for messages in self._rounds.values())

    def _compare(self, peer: bytes, rounds: tuple[tuple[int, bytes], ...]) -> list[Effect]:
        effects: list[Effect] = []
        for round_, digest in rounds:
            if round_ < self.floor:
                continue
            if round_ in self._rounds and digest == self._digest(round_):
                self._neighbours[peer].agreed[round_] = digest
            else:
                effects.append(Send(peer, self._have(round_, asked=True)))
        return effects

    def _have(self, round_: int, asked: bool) -> Have:
        ids = sorted(self._rounds.get(round_, {}))
        return Have(round_, tuple(ids[: self.limits.have_ids]), asked)

    def _learn(self, peer: bytes, frame: Have, now: float) -> list[Effect]:
        """Ask for what we lack, and tell what we hold when it asks for that."""
        if frame.round < self.floor:
            return []
        held = self._rounds.get(frame.round, {})
        new = []
        for id_ in frame.ids:
            full = id_ not in self._asked and len(self._asked) >= self.limits.wanted
            if full or id_ in held or id_ in self._refused:
                continue
            asked = self._asked.setdefault(id_, _Asked(frame.round))
            if peer not in asked.claims:
                asked.claims.append(peer)
            if asked.asked is None:
                new.append(id_)
        effects = self._ask(new, now)
        if frame.asked and not held.keys() <= set(frame.ids):
            effects.append(Send(peer, self._have(frame.round, asked=False)))
        return effects

    def _ask(self, ids: Iterable[bytes], now: float) -> list[Effect]:
        """Each from the next neighbour that claims it; when all failed, compare again."""
        wants: dict[bytes, list[bytes]] = {}
        for id_ in ids:
            asked = self._asked[id_]
            if asked.claims:
                asked.asked = asked.claims.pop(0)
                asked.until = now + self.limits.patience
                wants.setdefault(asked.asked, []).append(id_)
            else:
                del self._asked[id_]
                self._compare_again(asked.round, now)
        return [Send(peer, Want(tuple(wanted))) for peer, wanted in wants.items()]

    def _compare_again(self, round_: int, now: float) -> None:
        for neighbour in self._neighbours.values():
            neighbour.agreed.pop(round_, None)
            neighbour.stale_since = now

    def _give(self, peer: bytes, ids: tuple[bytes, ...]) -> list[Effect]:
        neighbour = self._neighbours[peer]
        effects: list[Effect] = []
        for messages in self._rounds.values():
            for id_ in ids:
                if id_ in messages:
                    neighbour.sent.add(id_)
                    effects.append(Send(peer, Gossip(messages[id_].sealed)))
        return effects
