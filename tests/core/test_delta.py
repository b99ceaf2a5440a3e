"""Changes of a state travel as differences, and arrive as the same state."""

from hashlib import sha256
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from folkmoot.core import delta
from folkmoot.core.coordinator import Coordinator, Run, apply, create, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.coordinator.view import apply_change, encode_change, view
from folkmoot.core.registry import registry_of
from support.memory_run import MemoryRun, finished


class Leaf(msgspec.Struct, frozen=True, array_like=True):
    n: int
    data: bytes = b""


class Person(msgspec.Struct, frozen=True, array_like=True):
    id: bytes
    leaf: Leaf
    holds: int = 0


class Tree(msgspec.Struct, frozen=True):
    name: str
    leaf: Leaf
    leaves: tuple[Leaf, ...] = ()
    numbers: tuple[int, ...] = ()
    maybe: Leaf | None = None
    people: tuple[Person, ...] = ()


leaves = st.builds(Leaf, st.integers(0, 3), st.binary(max_size=2))
trees = st.builds(
    Tree,
    st.sampled_from("ab"),
    leaves,
    st.lists(leaves, max_size=5).map(tuple),
    st.lists(st.integers(0, 3), max_size=5).map(tuple),
    st.none() | leaves,
    # Also in disorder and with an id twice: found is then less, never something wrong.
    st.lists(st.builds(Person, st.binary(max_size=1), leaves, st.integers(0, 1)), max_size=6).map(
        tuple
    ),
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


ABC = Tree("a", Leaf(0), numbers=(1, 2, 3))


@pytest.mark.parametrize(
    "pieces",
    [
        [[0, 4, None]],
        [[3, 4, None]],
        [[-1, 1, None]],
        [[1, 1, None]],
        [[2, 1, None]],
        [[1, 2, None], [0, 1, None]],
        [[0, 3, None]] * 2,
        [[0.0, 1.0, None]],
        [["0", "1", None]],
        [[0, 1, [delta.NEW, "x"]]],
        [[["x"]]],
        [[0, 1]],
    ],
)
def test_pieces_of_what_is_not_known_are_refused(pieces: object) -> None:
    """Nor one twice, nor in disorder: a short message cannot make a long tuple."""
    with pytest.raises(delta.DeltaError):
        delta.patch(ABC, {"numbers": [delta.PIECES, pieces]})


def joined(number: int, **config: object) -> Coordinator:
    """A run where `number` clients with addresses like real ones wait, and one more would begin."""
    rules = CoordinatorConfig(
        total_steps=9, min_clients=number, init_min_clients=number + 1, **config
    )
    state = create(Run(run_id="moot", config=rules, model=Model()), 0)
    for who in range(number):
        state = apply(state, join(who), 0, 0).state
    return state


def join(who: int) -> m.Join:
    return m.Join(sha256(bytes([who % 256, who // 256])).digest(), "moot", b"", bytes(60))


def test_an_epoch_of_a_thousand_clients_begins_and_ends_with_a_few_bytes() -> None:
    """Who waits was told as it came: a new roster costs its difference to that."""
    waiting = joined(1000)
    warmup = apply(waiting, join(1000), 1, 0).state
    paused = apply(warmup, m.Pause(), 2, 0).state
    gone = apply(paused, m.Withdraw(join(7).sender), 3, 0).state
    fewer = replace(gone.run.config, init_min_clients=1000)
    changed = apply(gone, m.Update(replace(gone.run, config=fewer)), 4, 0).state
    resumed = apply(changed, m.Resume(), 5, 0).state
    waits = apply(resumed, m.Tick(), 6, 0).state
    again = apply(waits, m.Tick(), 7, 0).state
    states = [waiting, warmup, paused, gone, changed, resumed, waits, again]
    phases = [state.phase.name for state in states]
    assert phases[:3] == ["WaitingForMembers", "Warmup", "Paused"]
    assert phases[-1] == "Warmup"
    seen = view(waiting)
    for old, new in pairwise(states):
        change = encode_change(view(old), view(new))
        seen = apply_change(seen, change) if change else seen
        assert encode(seen) == encode(view(new))
        assert len(change) < 400, new.phase
    assert len(encode(seen)) > 100_000


def test_all_clients_that_hold_another_model_are_one_piece() -> None:
    waiting = view(joined(1000))
    held = [replace(pending, model_hash=bytes(32)) for pending in waiting.pending]
    change = encode_change(waiting, replace(waiting, pending=registry_of(held)))
    assert len(change) < 100
    assert list(apply_change(waiting, change).pending) == held


def test_a_view_followed_by_changes_is_the_view_of_the_state() -> None:
    """Over a whole run; and a round's changes are small although the state is not."""
    run = MemoryRun(5, delay=1, total_steps=20, rounds_per_epoch=10)
    seen = shown = view(run.state)
    sizes = []
    while not finished(run):
        run.run_until(lambda run: view(run.state) != shown)  # noqa: B023
        shown = view(run.state)
        change = encode_change(seen, shown)
        seen = apply_change(seen, change)
        sizes.append(len(change))
        assert encode(seen) == encode(shown)
    assert sorted(sizes)[len(sizes) // 2] < len(encode(shown)) / 4


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"\x81\xa1x\x01", b"\x80trailing"])
def test_bytes_that_are_no_change_are_refused(garbage: bytes) -> None:
    with pytest.raises(delta.DeltaError):
        apply_change(view(MemoryRun(1).state), garbage)
