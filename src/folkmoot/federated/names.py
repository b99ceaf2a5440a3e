"""Names that travel: of runs and of participants. They become parts of keys and of file names."""

import re

#: A name is a plain one: it can be a file's, and leads nowhere else.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
#: Under which a round's global model lies, beside the participants' updates.
GLOBAL = "global"
#: The bucket of a coordinator that carries weights itself.
CARRIED = "coordinator"
LONGEST_TEXT = 500


def is_participant_id(name: str) -> bool:
    return bool(PLAIN_NAME.fullmatch(name)) and name != GLOBAL


def plain_text(text: str) -> str:
    """What a stranger wrote, as it may be shown on a terminal: in one line, and not long."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST_TEXT])
    return f"{shown}…" if len(text) > LONGEST_TEXT else shown
