"""The keys of a run in its part of a store."""

GENESIS = "genesis"
# The newest record; `READY:n` is record n, for those who wait for it or come late.
RECORD, READY = "record", "ready"
# How many slots of the mailbox were handed out.
CLAIMED = "claimed"
# Before the number of a letter's slot.
LETTERS = "mail:"


def letter(slot: int) -> str:
    return f"{LETTERS}{slot}"


def ready(version: int) -> str:
    return f"{READY}:{version}"


def snapshot_piece(version: int, number: int) -> str:
    return f"snapshot:{version}:{number}"
