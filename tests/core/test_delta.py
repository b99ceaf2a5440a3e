"""Changes of a state travel as differences, and arrive as the same state."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.coordinator.test_client import Moot, finished
from folkmoot.core import delta
from folkmoot.core.coordinator import encode
from folkmoot.core.coordinator.view import apply_change, encode_change, view


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    n: int
    data: bytes = b""


class Tree(msgspec.Struct, frozen=True):
    name: str
    leaf: Leaf
    leaves: tuple[Leaf, ...] = ()
    numbers: tuple[int, ...] = ()
    maybe: Leaf | None = None


leaves = st.builds(Leaf, st.integers(0, 3), st.binary(max_size=2))
trees = st.builds(
    Tree,
    st.sampled_from("ab"),
    leaves,
    st.lists(leaves, max_size=5).map(tuple),
    st.lists(st.integers(0, 3), max_size=5).map(tuple),
    st.none() | leaves,
)


@given(trees, trees)
def test_a_patch_gives_the_new_value(old: Tree, new: Tree) -> None:
    sent = msgspec.msgpack.encode(delta.diff(old, new))
    assert delta.patch(old, msgspec.msgpack.decode(sent)) == new


@given(trees, st.recursive(st.none() | st.integers() | st.binary(), st.lists, max_leaves=8))
def test_a_change_that_does_not_fit_is_refused(old: Tree, change: object) -> None:
    try:
        delta.patch(old, {"leaves": change, "leaf": change})
    except delta.DeltaError:
        return
    raise AssertionError("nonsense was applied")


def test_a_view_followed_by_changes_is_the_view_of_the_state() -> None:
    """Over a whole run; and a round's changes are small although the state is not."""
    moot = Moot(5, delay=1, total_steps=20, rounds_per_epoch=10)
    seen = shown = view(moot.state)
    sizes = []
    while not finished(moot):
        moot.run_until(lambda moot: view(moot.state) != shown)  # noqa: B023
        shown = view(moot.state)
        change = encode_change(seen, shown)
        seen = apply_change(seen, change)
        sizes.append(len(change))
        assert encode(seen) == encode(shown)
    assert sorted(sizes)[len(sizes) // 2] < len(encode(shown)) / 4


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"\x81\xa1x\x01", b"\x80trailing"])
def test_bytes_that_are_no_change_are_refused(garbage: bytes) -> None:
    with pytest.raises(delta.DeltaError):
        apply_change(view(Moot(1).state), garbage)
