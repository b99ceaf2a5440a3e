"""The thread that sends what waits for more to come."""

import threading

from folkmoot.unified.channel.writer import _Linger


def test_who_stops_it_while_it_wakes_up_does_not_wait_for_ever() -> None:
    linger = _Linger(lambda: 0.0)

    class StoppedJustBefore(threading.Event):
        """Somebody stops the thread when it is about to take the wake-up."""

        def clear(self) -> None:
            linger._stopped.set()
            self.set()
            super().clear()

    linger._woken = StoppedJustBefore()
    linger.wake()
    assert linger._thread
    linger._thread.join(60)
    assert not linger._thread.is_alive()
