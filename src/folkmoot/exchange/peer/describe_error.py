"""What went wrong below us, in a few words."""

import re

from iroh import IrohError

_WHERE = re.compile(r"\s*\(/[^)]*\)")  # iroh adds the line of its own source


def describe_error(error: Exception) -> str:
    """The innermost cause of an error of the transport, or of time being up."""
    if isinstance(error, TimeoutError):
        return "time was up"
    text = error.message() if isinstance(error, IrohError) else str(error)
    lines = [_WHERE.sub("", line).strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__
