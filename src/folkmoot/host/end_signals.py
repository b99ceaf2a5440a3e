"""The signals that ask a process to end."""

import contextlib
import signal
from collections.abc import Iterator
from signal import Signals


def end_signals() -> tuple[Signals, ...]:
    """Ctrl-C, SIGTERM, and what a terminal sends when it goes; `nohup` has the last ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,)))


@contextlib.contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Have each of them raise `KeyboardInterrupt` in this block: children must not outlive us."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in end_signals()
        if number is not signal.SIGINT
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
