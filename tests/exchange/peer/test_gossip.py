"""The gossip of many members in one process: links with delay that break, heal, or never exist."""

import heapq
import random
from collections import Counter
from itertools import combinations, count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.exchange.peer.gossip import Blame, Deliver, Discard, Effect, GossipNode, Limits, Send
from folkmoot.exchange.peer.message import SIGNATURE_BYTES, Content, GossipMessage, peek_id
from folkmoot.exchange.peer.tree import children
from folkmoot.exchange.peer.wire import Digest, Frame, Gossip, Have, Hello, Want


def sealed(origin: bytes, round_: int, body: bytes) -> GossipMessage:
    """A message whose signature nobody looks at."""
    content = Content(origin, round_, b"", body)
    data = msgspec.msgpack.encode(content) + bytes(SIGNATURE_BYTES)
    return GossipMessage(peek_id(data), content, data)


def unsealed(data: bytes) -> GossipMessage:
    content = msgspec.msgpack.decode(data[:-SIGNATURE_BYTES], type=Content)
    return GossipMessage(peek_id(data), content, data)


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def member_of(count: int, **limits: int) -> GossipNode:
    """The first of so many members, connected to all the others."""
    node = GossipNode(key(0), unsealed, Limits(**limits))
    ids = [key(n) for n in range(count)]
    node.members(ids)
    for other in ids[1:]:
        node.connected(other, 0.0)
    return node


class World:
    """Members, the links between them, and frames under way."""

    def __init__(self, size: int, limits: Limits, seed: int = 0) -> None:
        self.now = 0.0
        self.rng = random.Random(seed)
        self.ids = [key(n) for n in range(size)]
        self.nodes = {id_: GossipNode(id_, unsealed, limits) for id_ in self.ids}
        self.heard: dict[bytes, Counter[bytes]] = {id_: Counter() for id_ in self.ids}
        self.frames: Counter[type[Frame]] = Counter()
        self.links: dict[tuple[bytes, bytes], int] = {}  # pair: which connection this is
        self.under_way: list[tuple[float, int, bytes, bytes, int, Frame]] = []
        self.numbers = count()
        for node in self.nodes.values():
            node.members(self.ids)

    def connect(self, a: bytes, b: bytes) -> None:
        self.links[a, b] = self.links[b, a] = next(self.numbers)
        self.nodes[a].connected(b, self.now)
        self.nodes[b].connected(a, self.now)

    def disconnect(self, a: bytes, b: bytes) -> None:
        """What is under way between them is lost."""
        if self.links.pop((a, b), None) is not None:
            del self.links[b, a]
            self.nodes[a].disconnected(b)
            self.nodes[b].disconnected(a)

    def publish(self, author: bytes, round_: int, body: bytes) -> GossipMessage:
        message = sealed(author, round_, body)
        self.do(author, self.nodes[author].publish(message, self.now))
        return message

    def do(self, me: bytes, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, frame):
                    self.frames[type(frame)] += 1
                    link = self.links[me, to]
                    at = self.now + 0.01 + 0.02 * self.rng.random()
                    heapq.heappush(self.under_way, (at, next(self.numbers), me, to, link, frame))
                case Deliver(message):
                    self.heard[me][message.id] += 1
                case _:
                    raise AssertionError(effect)

    def settle(self) -> None:
        """Until nothing is under way and nothing is due."""
        assert self.run(self.now + 600) == float("inf"), "gossip does not come to rest"

    def run(self, until: float) -> float:
        """Let time pass; when the next thing will happen."""
        while True:
            due = {id_: at for id_, node in self.nodes.items() if (at := node.due()) is not None}
            tick = min(due.values(), default=float("inf"))
            arrival = self.under_way[0][0] if self.under_way else float("inf")
            if min(tick, arrival) > until:
                return min(tick, arrival)
            self.now = max(self.now, min(tick, arrival))
            if arrival <= tick:
                _, _, sender, to, link, frame = heapq.heappop(self.under_way)
                if self.links.get((sender, to)) == link:
                    self.do(to, self.nodes[to].receive(sender, frame, self.now))
            else:
                for id_ in [id_ for id_, at in due.items() if at <= self.now]:
                    self.do(id_, self.nodes[id_].tick(self.now))

    def assert_covered(self, messages: list[GossipMessage]) -> None:
        for id_ in self.ids:
            expected = {m.id: 1 for m in messages if m.origin != id_}
            assert dict(self.heard[id_]) == expected


def full(size: int, limits: Limits | None = None) -> World:
    world = World(size, limits or Limits())
    for a, b in combinations(world.ids, 2):
        world.connect(a, b)
    return world


@pytest.mark.parametrize("size", [2, 5, 12, 13, 20])
def test_without_faults_a_message_crosses_the_network_once_per_member(size: int) -> None:
    world = full(size)
    messages = [world.publish(author, 1, b"result") for author in world.ids]
    world.settle()
    world.assert_covered(messages)
    assert world.frames[Gossip] == size * (size - 1)
    assert not world.frames[Have]
    assert not world.frames[Want]


@pytest.mark.parametrize("size", [2, 8, 16])
def test_agreement_costs_one_digest_a_pair(size: int) -> None:
    world = full(size)
    for author in world.ids:
        world.publish(author, 1, b"result")
    world.settle()
    assert world.frames[Digest] == size * (size - 1) // 2


def test_a_members_own_sends_are_bounded_in_a_large_epoch() -> None:
    world = full(60)
    sends = world.nodes[world.ids[0]].publish(sealed(world.ids[0], 1, b"x"), 0.0)
    assert len(sends) == Limits().fanout


Fault = st.tuples(st.sampled_from(["cut", "heal", "publish", "pause"]), st.integers(0, 10**6))


@given(size=st.integers(2, 16), seed=st.integers(0, 10**6), script=st.lists(Fault, max_size=80))
def test_whatever_breaks_everybody_hears_everything_once_it_heals(
    size: int, seed: int, script: list[tuple[str, int]]
) -> None:
    world = World(size, Limits(direct=6, fanout=3), seed)
    pairs = list(combinations(world.ids, 2))
    messages = []
    for what, number in script:
        a, b = pairs[number % len(pairs)]
        if what == "cut":
            world.disconnect(a, b)
        elif what == "heal" and (a, b) not in world.links:
            world.connect(a, b)
        elif what == "publish":
            author = world.ids[number % size]
            messages.append(world.publish(author, number % 3, str(len(messages)).encode()))
        elif what == "pause":
            world.now += 0.01  # several things happen between two frames
            world.run(world.now + number % 1000 / 1000)
    # What is left connected is any tree: many pairs never meet.
    for position, id_ in enumerate(world.ids[1:], 1):
        parent = world.ids[world.rng.randrange(position)]
        if (parent, id_) not in world.links:
            world.connect(parent, id_)
    world.settle()
    world.assert_covered(messages)


def test_what_is_missed_is_fetched_from_one_neighbour_only() -> None:
    world = full(8)
    late = world.ids[3]
    for other in world.ids:
        if other != late:
            world.disconnect(late, other)
    messages = [world.publish(world.ids[n], 1, b"m") for n in (0, 1, 2)]
    world.settle()
    before = world.frames[Gossip]
    for other in world.ids:
        if other != late:
            world.connect(late, other)
    world.settle()
    world.assert_covered(messages)
    assert world.frames[Gossip] - before == len(messages)


def test_past_a_child_that_is_out_of_reach_its_children_are_sent_to() -> None:
    world = full(30)
    author = world.ids[0]
    first = children(author, author, 1, world.ids, Limits().fanout)
    for child in first:
        world.disconnect(author, child)
    world.publish(author, 1, b"m")
    world.run(world.now + 0.2)  # before any digest
    assert {id_ for id_ in world.ids[1:] if not world.heard[id_]} == set(first)
    world.settle()
    assert all(world.heard[id_] for id_ in world.ids[1:])


def test_when_nobody_sends_what_all_claim_neighbours_compare_again() -> None:
    liar, node = key(1), member_of(2)
    held = sealed(node.me, 1, b"mine")
    node.publish(held, 0.0)
    node.tick(10.0)
    node.receive(liar, Have(1, (held.id, bytes(16)), False), 10.0)
    assert node.tick(20.0) == []  # the one that claimed it was the last to ask
    assert isinstance(node.tick(30.0)[0].frame, Digest)  # type: ignore[union-attr]


def test_a_neighbour_that_claims_and_does_not_send_is_passed_over() -> None:
    liar, honest, node = key(1), key(2), member_of(3)
    message = sealed(honest, 1, b"m")
    assert node.receive(liar, Have(1, (message.id,), False), 0.0) == [
        Send(liar, Want((message.id,)))
    ]
    assert node.receive(honest, Have(1, (message.id,), False), 0.0) == []
    assert node.due() == Limits().patience
    assert Send(honest, Want((message.id,))) in node.tick(Limits().patience)


def test_an_author_has_a_quota_and_who_breaks_it_directly_is_blamed() -> None:
    author, other, node = key(1), key(2), member_of(3, quota_messages=3)
    for n in range(3):
        frame = Gossip(sealed(author, n, b"m").sealed)
        assert isinstance(node.receive(author, frame, 0.0)[0], Deliver)
    frame = Gossip(sealed(author, 9, b"m").sealed)
    assert isinstance(node.receive(other, frame, 0.0)[0], Discard)
    assert isinstance(node.receive(author, frame, 0.0)[0], Blame)
    node.expire(1)
    assert isinstance(node.receive(other, Gossip(sealed(author, 9, b"n").sealed), 0.0)[0], Deliver)


def test_a_quota_counts_bytes() -> None:
    author, node = key(1), member_of(2, quota_bytes=1000)
    assert isinstance(
        node.receive(author, Gossip(sealed(author, 1, bytes(600)).sealed), 0.0)[0], Deliver
    )
    assert isinstance(
        node.receive(author, Gossip(sealed(author, 1, bytes(601)).sealed), 0.0)[0], Blame
    )


def test_rounds_that_are_over_are_neither_taken_nor_asked_for() -> None:
    other, node = key(1), member_of(2)
    node.expire(5)
    old = sealed(other, 4, b"m")
    assert isinstance(node.receive(other, Gossip(old.sealed), 0.0)[0], Discard)
    assert node.receive(other, Have(4, (old.id,), True), 0.0) == []
    assert node.receive(other, Digest(((4, bytes(16)),)), 0.0) == []


def test_nothing_is_kept_of_rounds_that_are_over() -> None:
    world = full(3, Limits(quota_messages=2))
    for round_ in range(2):
        for author in world.ids:
            world.publish(author, round_, b"result")
    world.settle()
    one, author, other = world.ids
    too_many = Gossip(sealed(author, 1, b"third").sealed)
    node = world.nodes[one]
    assert isinstance(node.receive(other, too_many, world.now)[0], Discard)
    node.expire(2)
    kept = [node._rounds, node._digests, node._asked, node._refused, node._used]
    for neighbour in node._neighbours.values():
        kept += [neighbour.sent, neighbour.agreed]
    assert not any(kept), kept


def test_one_who_left_is_heard_on_rounds_that_had_begun_and_no_later() -> None:
    left, other, node = key(1), key(2), member_of(3)
    node.disconnected(left)
    node.receive(other, Gossip(sealed(other, 7, b"m").sealed), 0.0)
    node.members([node.me, other])
    assert isinstance(node.receive(other, Gossip(sealed(left, 7, b"m").sealed), 0.0)[0], Deliver)
    assert isinstance(node.receive(other, Gossip(sealed(left, 8, b"m").sealed), 0.0)[0], Discard)


def test_a_second_different_message_of_an_author_spreads_too() -> None:
    world = full(4)
    liar = world.ids[0]
    one, two = sealed(liar, 1, b"this"), sealed(liar, 1, b"that")
    a, b = world.ids[1], world.ids[2]
    world.do(a, world.nodes[a].receive(liar, Gossip(one.sealed), 0.0))
    world.do(b, world.nodes[b].receive(liar, Gossip(two.sealed), 0.0))
    world.settle()
    for id_ in world.ids[1:]:
        assert set(world.heard[id_]) == {one.id, two.id}


def test_a_frame_that_is_not_gossip_is_blamed() -> None:
    other, node = key(1), member_of(2)
    assert isinstance(node.receive(other, Hello(bytes(32), bytes(8)), 0.0)[0], Blame)
