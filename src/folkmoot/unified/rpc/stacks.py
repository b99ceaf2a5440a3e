"""What every thread of this process is doing, in words: for a call that takes too long."""

import os
import sys
import threading
import traceback
from collections.abc import Mapping
from types import FrameType

# The innermost frames say where it hangs; a recursion of a thousand would hide them.
DEEPEST = 40


def stacks(notes: Mapping[int, str] | None = None) -> str:
    """The stack of each thread, innermost call last; `notes` says what some of them are for."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    here = threading.get_ident()
    noted = notes or {}
    told = []
    for ident, frame in sys._current_frames().items():
        if ident == here and ident not in noted:
            continue  # who asks is not who hangs
        title = f"thread {names.get(ident, ident)}"
        if ident in noted:
            title += f" ({noted[ident]})"
        told.append((ident not in noted, f"{title}:\n{_stack(frame)}"))
    told.sort(key=lambda entry: entry[0])
    return f"process {os.getpid()}\n" + "\n".join(text for _, text in told)


def _stack(frame: FrameType) -> str:
    summary = traceback.extract_stack(frame)
    begun = [k for k, entry in enumerate(summary) if entry.name == "_bootstrap_inner"]
    inner = summary[begun[-1] + 1 :] if begun else summary  # how a thread starts says nothing
    return "".join(traceback.format_list(inner[-DEEPEST:])).rstrip()
