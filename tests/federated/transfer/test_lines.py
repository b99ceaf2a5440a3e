"""Lines move to a thread that has nothing to do, and lose nothing on the way."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from folkmoot.federated.transfer.lines import ANSWER, READ, Life, Line, LineThread


@contextlib.contextmanager
def two_threads(*lives: Callable[[Line], Life]) -> Iterator[None]:
    """Lines that live these lives: there is always something to read. They begin on the first."""
    threads: list[LineThread] = []
    for number in range(2):
        threads.append(LineThread(f"lines-{number}", 16, threads))
    pairs = [socket.socketpair() for _ in lives]
    for (near, far), life in zip(pairs, lives, strict=True):
        far.sendall(b"!")
        threads[0].add(near, life)
    for thread in reversed(threads):
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.close()
        for _, far in pairs:
            far.close()


def test_of_bodies_that_come_together_one_moves_to_a_thread_with_nothing_to_do() -> None:
    seen, moved = set[str](), threading.Event()

    def life(line: Line) -> Life:
        line.allow(60)
        line.heavy = True
        while len(seen) < 2:
            yield READ  # there is always something: nobody takes it
            seen.add(threading.current_thread().name)
        moved.set()

    with two_threads(life, life):
        assert moved.wait(60)
    assert seen == {"lines-0", "lines-1"}


def test_what_is_no_body_stays_where_it_is() -> None:
    seen, ended = set[str](), threading.Semaphore(0)

    def life(line: Line) -> Life:
        line.allow(60)
        for _ in range(1000):
            yield READ
            seen.add(threading.current_thread().name)
        ended.release()

    with two_threads(life, life):
        assert ended.acquire(timeout=60)
        assert ended.acquire(timeout=60)
    assert seen == {"lines-0"}


def test_an_answer_to_who_has_moved_follows_it() -> None:
    waiting: list[tuple[LineThread, Line]] = []
    there, went_on = threading.Event(), threading.Event()

    def life(line: Line) -> Life:
        line.allow(60)
        line.heavy = True
        first = line.thread
        while line.thread is first and not there.is_set():
            yield READ
        if not there.is_set():
            waiting.append((first, line))
            there.set()
            yield ANSWER
            went_on.set()

    with two_threads(life, life):
        assert there.wait(60)
        ((first, line),) = waiting
        first.resume(line)  # as who looked where it is just before it moved
        assert went_on.wait(60)


def test_of_too_many_lines_the_one_that_waits_for_its_owner_longest_goes() -> None:
    thread = LineThread("lines", 2)
    pairs = [socket.socketpair() for _ in range(3)]
    there = threading.Semaphore(0)

    def life(line: Line) -> Life:
        line.allow(60)
        there.release()
        yield READ

    thread.start()
    try:
        for near, _ in pairs:
            thread.add(near, life)
            assert there.acquire(timeout=60)
        pairs[0][1].settimeout(60)
        assert pairs[0][1].recv(1) == b""
        assert [near.fileno() >= 0 for near, _ in pairs] == [False, True, True]
    finally:
        thread.stop()
        thread.close()
        for _, far in pairs:
            far.close()
