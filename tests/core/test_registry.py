"""A registry is a dict by id, sorted, that never changes."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.coordinator.state import Pending
from folkmoot.core.registry import Registry, registry_of

# Few different ids, so that they meet; the first byte decides the shard.
IDS = st.tuples(st.sampled_from([0, 1, 2, 127, 128, 255]), st.integers(0, 3)).map(
    lambda parts: bytes([parts[0], *[parts[1]] * 31])
)
CHANGES = st.lists(st.tuples(st.booleans(), IDS, st.integers(-9, 9)), max_size=40)


@given(CHANGES)
def test_a_registry_is_a_dict(changes: list[tuple[bool, bytes, int]]) -> None:
    plain: dict[bytes, Pending] = {}
    registry: Registry[Pending] = Registry()
    for put, identity, seen in changes:
        kept, before = dict(plain), registry
        if put:
            plain[identity] = Pending(identity, seen)
            registry = registry.put(plain[identity])
        else:
            plain.pop(identity, None)
            registry = registry.drop(identity)
        assert list(before) == [kept[key] for key in sorted(kept)], "the old one changed"
        assert list(registry) == [plain[key] for key in sorted(plain)]
        assert len(registry) == len(plain)
        assert registry.get(identity) == plain.get(identity)
    assert registry == registry_of(plain.values())
    assert registry_of(reversed(list(plain.values()))) == registry


@given(st.lists(IDS, unique=True))
def test_arrival_order_does_not_show_in_the_bytes(ids: list[bytes]) -> None:
    forwards: Registry[Pending] = Registry()
    backwards: Registry[Pending] = Registry()
    for identity in ids:
        forwards = forwards.put(Pending(identity, 1))
    for identity in reversed(ids):
        backwards = backwards.put(Pending(identity, 1))
    assert msgspec.msgpack.encode(forwards) == msgspec.msgpack.encode(backwards)
