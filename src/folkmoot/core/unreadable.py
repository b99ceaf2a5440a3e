"""What decoding bytes of a stranger can raise. msgspec's own errors are not all of it."""

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
