"""The letters in the mailbox: read once, judged, and held until they are worth a record."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from folkmoot.authority.store import keys
from folkmoot.authority.store.feed import Feed
from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.kv import Store
from folkmoot.authority.store.mail import BadMail, Mail, Message, read_mail
from folkmoot.authority.store.mailbox import MAX_HOLES, Mailbox
from folkmoot.authority.store.record import MAX_LETTERS
from folkmoot.core.coordinator import messages as m

logger = logging.getLogger(__name__)

# Seconds after which a slot that stays empty is given up. Nobody waits for it meanwhile.
HOLE_TIME = 10.0
# Slots that are looked at when the counter cannot be right.
DOUBTFUL = 64
# Signs of life change nothing for anybody: they wait for other letters, but no longer than so many
# seconds, and than this part of the time after which one is missed.
UNHURRIED, PART = 1.0, 1 / 20
# And so many at most go into one record. Very many would hold up what others wait for, in this
# record and the next, for as long as everybody checks their signatures.
SIGNS_AT_ONCE = 32


class Letter(NamedTuple):
    mail: Mail
    message: Message | None  # None when it is no good
    seen: float  # when we first saw it, by our monotonic clock


class Letters:
    """What one client knows of the mailbox."""

    def __init__(self, genesis: Genesis, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._genesis, self._monotonic = genesis, monotonic
        self._unhurried = min(genesis.run.config.health_check_timeout * PART, UNHURRIED)
        self._known: dict[int, Letter] = {}
        self._empty: dict[int, float] = {}  # slots before filled ones, and since when we know

    def gather(self, feed: Feed, store: Store, mailbox: Mailbox) -> None:
        """Take what came; read what we may not have been told of."""
        came = feed.letters()
        if feed.whole:
            slots = mailbox.open_slots(max((*self._known, *came), default=0))
        else:
            slots = mailbox.open_slots(claimed(store, mailbox))
        unread = [slot for slot in slots if slot not in self._known]
        if not feed.whole:
            names = [keys.letter(slot) for slot in unread]
            found = zip(unread, store.get_many(names), strict=True)
            came = {slot: data for slot, data in found if data is not None}
            feed.read_mailbox()
        for slot in unread:
            if slot in came:
                self._judge(Mail(slot, came[slot]))
        self._known = {slot: self._known[slot] for slot in slots if slot in self._known}
        last = max(self._known, default=0)
        now = self._monotonic()
        empty = [slot for slot in slots if slot < last and slot not in self._known]
        self._empty = {slot: self._empty.get(slot, now) for slot in {*empty, *mailbox.holes}}
        for slot in self._known:
            self._empty.pop(slot, None)

    def note(self, mailbox: Mailbox, slot: int, data: bytes) -> None:
        """A letter of ours: seen as soon as it is there."""
        if self.is_news(mailbox, slot):
            self._judge(Mail(slot, data))

    def forget_taken(self, mailbox: Mailbox) -> None:
        """A record was made: what it took is worth none any more."""
        self._known = {s: known for s, known in self._known.items() if mailbox.is_open(s)}

    def is_news(self, mailbox: Mailbox, slot: int) -> bool:
        """Whether a letter in that slot could be taken and was not seen."""
        return slot not in self._known and mailbox.is_open(slot)

    def first_unseen(self, mailbox: Mailbox) -> int:
        """The slot whose letter is news."""
        return max(mailbox.next - 1, *self._known, 0) + 1 if self._known else mailbox.next

    def last_of(self, mailbox: Mailbox, urgent: int) -> int:
        """The slot that the last of so many urgent letters has if no others come."""
        idle = sum(not _urgent(letter.message) for letter in self._known.values())
        return mailbox.next - 1 + urgent + idle

    def ripe_at(self, patience: float) -> float | None:
        """When what lies there is worth a record, if urgent letters wait for `patience` seconds."""
        times = [
            letter.seen + (patience if _urgent(letter.message) else max(self._unhurried, patience))
            for letter in self._known.values()
        ]
        times += [since + HOLE_TIME for since in self._empty.values()]
        return min(times, default=None)

    def for_record(self) -> tuple[list[tuple[Mail, Message]], list[int]]:
        """Letters in order, as many as fit, and slots to give up."""
        letters: list[tuple[Mail, Message]] = []
        given_up, size, now = [], 0, self._monotonic()
        for slot in sorted(self._known.keys() - self._for_later()):
            mail, message, _ = self._known[slot]
            if message is None:
                given_up.append(slot)
                continue
            size += len(mail.data)
            if size > MAX_LETTERS:
                break
            letters.append((mail, message))
        old = [slot for slot, since in self._empty.items() if now - since >= HOLE_TIME]
        crowd = sorted(self._empty)[: max(len(self._empty) - MAX_HOLES // 2, 0)]
        return letters, sorted({*given_up, *old, *crowd})

    def _for_later(self) -> set[int]:
        """Signs of life that the next record leaves. It takes one of each sender before it takes
        two of any, so that nobody who floods the mailbox keeps out the others."""
        signs: list[tuple[int, int]] = []
        of_sender: Counter[bytes] = Counter()
        for slot in sorted(self._known):
            message = self._known[slot].message
            if isinstance(message, m.HealthCheck) and not _urgent(message):
                of_sender[message.sender] += 1
                signs.append((of_sender[message.sender], slot))
        return {slot for _, slot in sorted(signs)[SIGNS_AT_ONCE:][-(MAX_HOLES // 2) :]}

    def discard(self, slot: int) -> None:
        """A letter that the run cannot take is no good, whatever it says."""
        letter = self._known[slot]
        self._known[slot] = letter._replace(message=None)

    def _judge(self, mail: Mail) -> None:
        message: Message | None = None
        try:
            message = read_mail(self._genesis, mail)
        except BadMail as error:
            logger.info("the letter in slot %d counts for nothing: %s", mail.slot, error)
            mail = Mail(mail.slot, b"")  # not worth its memory
        self._known[mail.slot] = Letter(mail, message, self._monotonic())


def claimed(store: Store, mailbox: Mailbox) -> int:
    """How many slots were handed out, as far as the counter can be believed."""
    said = store.get(keys.CLAIMED) or b"0"
    count = int(said) if said.isdigit() and len(said) < 20 else -1
    if mailbox.believes(count):
        return count
    return mailbox.next + DOUBTFUL


def _urgent(message: Message | None) -> bool:
    """Whether anybody but its sender notices when it comes later."""
    return message is not None and (
        not isinstance(message, m.HealthCheck) or bool(message.unhealthy)
    )
