"""Putting a letter into the mailbox: claim a slot, sign for it, fill it.

Who is told of letters signs for the next few slots, and claims and fills one of them in one trip,
if the store can do that.

A counter that a stranger moved, spoiled or deleted is set right by whoever is handed a slot that
cannot be: nobody needs it to be correct, only to be near.
"""

from collections.abc import Callable
from contextlib import suppress

from folkmoot.authority.store import keys
from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.kv import Store, StoreError, WrongType
from folkmoot.authority.store.mail import MAX_MAIL, Message, write_mail
from folkmoot.authority.store.mailbox import WINDOW, Mailbox
from folkmoot.host.signing import Identity


class Post:
    """Sends letters of one client, from one thread."""

    def __init__(self, store: Store, genesis: Genesis, identity: Identity) -> None:
        self._store, self._genesis, self._identity = store, genesis, identity
        self._last = 0  # the slot of our last letter

    def send(
        self,
        message: Message,
        mailbox: Callable[[], Mailbox],
        expect: Callable[[int], None],
        next_slot: int = 0,
    ) -> tuple[int, bytes]:
        """The slot that the message is in, and its bytes; `expect` hears of it before others can.

        It may hear of slots that come to nothing, too. `mailbox` gives the newest that is known of
        the mailbox; `next_slot` is the one that it may get, if anything is known of that. Raises
        `StoreError`.
        """
        written: dict[int, bytes] = {}

        def write(slot: int) -> tuple[str, bytes]:
            data = written[slot] = write_mail(self._identity, self._genesis, slot, message)
            if len(data) > MAX_MAIL:
                raise ValueError(f"a message of {len(data):,} bytes is larger than any may be")
            expect(slot)
            return keys.letter(slot), data

        near = max(next_slot, self._last + 1)
        if next_slot and mailbox().believes(near):
            found = self._store.add_and_create(keys.CLAIMED, near, write)
            if found is not None:
                self._last = found
                return found, written[found]
        for _ in range(WINDOW):
            slot = self._claim(mailbox)
            name, data = write(slot)
            if self._store.compare_set(name, b"", data) == data:
                self._last = slot
                return slot, data
        raise StoreError("every slot of the run's mailbox is taken: is the store full of garbage?")

    def withdraw(self, slot: int) -> None:
        """Remove a letter that came too late to be taken."""
        with suppress(StoreError):  # it costs room, nothing else
            self._store.delete(keys.letter(slot))

    def _claim(self, mailbox: Callable[[], Mailbox]) -> int:
        for _ in range(WINDOW):
            try:
                slot = self._store.add(keys.CLAIMED, 1)
                said = b"%d" % slot
            except WrongType:
                slot, said = -1, self._store.get(keys.CLAIMED) or b""
            known = mailbox()
            if slot >= known.next and known.believes(slot):
                return slot
            # Ours may be old news, but what is taken by then is passed over slot by slot.
            self._store.compare_set(keys.CLAIMED, said, b"%d" % (known.next - 1))
        raise StoreError(f"somebody keeps spoiling '{keys.CLAIMED}', the counter of the mailbox")
