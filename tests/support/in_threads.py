"""Works that go on at the same time, each of which must end without an error."""

import threading
from collections.abc import Callable


def in_threads(*works: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    assert errors == []
    assert not any(thread.is_alive() for thread in threads)
