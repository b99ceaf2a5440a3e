"""Names that travel: of runs and of participants. They become parts of keys and of file names."""

import re

from folkmoot.host.plain_text import plain_text as plain_text

#: A name is a plain one: it can be a file's, and leads nowhere else.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")
#: Under which a round's global model lies, beside the participants' updates.
GLOBAL = "global"
#: The bucket of a coordinator that carries weights itself.
CARRIED = "coordinator"


def is_participant_id(name: str) -> bool:
    return bool(PLAIN_NAME.fullmatch(name)) and name != GLOBAL
