"""Which slots were taken, beside a plain account of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.authority.store.mailbox import MAX_HOLES, WINDOW, Mailbox


@given(st.lists(st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=8), max_size=8))
def test_every_slot_is_taken_or_given_up_at_most_once(
    records: list[list[tuple[int, bool]]],
) -> None:
    mailbox, done = Mailbox(), set[int]()
    for record in records:
        taken = sorted({slot for slot, good in record if good})
        given_up = sorted({slot for slot, good in record if not good})
        known = done.intersection(taken + given_up) or set(taken).intersection(given_up)
        if known:
            with pytest.raises(ValueError, match=r"not open|gives it up"):
                mailbox.without(taken, given_up)
            continue
        mailbox = mailbox.without(taken, given_up)
        done.update(taken, given_up)
        assert mailbox.next == max(done, default=0) + 1
        assert set(mailbox.open_slots(60)) == set(range(1, 61)) - done


def test_letters_are_taken_in_order_and_near() -> None:
    with pytest.raises(ValueError, match="order"):
        Mailbox().without([2, 1])
    with pytest.raises(ValueError, match="order"):
        Mailbox().without([1, 1])
    with pytest.raises(ValueError, match="not open"):
        Mailbox().without([WINDOW + 1])
    with pytest.raises(ValueError, match="holes"):
        Mailbox().without([MAX_HOLES + 2])
    assert Mailbox().without([3]) == Mailbox(4, (1, 2))
    assert Mailbox(4, (1, 2)).without([2], [1]) == Mailbox(4, ())


@pytest.mark.parametrize(
    ("claimed", "believed"), [(8, False), (9, True), (10, True), (9999, False)]
)
def test_a_counter_is_believed_when_it_can_be_right(claimed: int, believed: bool) -> None:
    assert Mailbox(10).believes(claimed) is believed
