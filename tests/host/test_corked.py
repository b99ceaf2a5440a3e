"""Bodies that go out corked: packets are held back while a body goes, and never after it."""

import socket

import pytest

from folkmoot.host.corked import corked

linux = pytest.mark.skipif(not hasattr(socket, "TCP_CORK"), reason="Linux alone has TCP_CORK")


def is_corked(line: socket.socket) -> bool:
    return bool(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_CORK))


@linux
def test_a_line_sends_full_packets_alone_while_a_body_goes() -> None:
    with socket.socket() as line:
        with corked(line):
            assert is_corked(line)
        assert not is_corked(line)


@linux
def test_a_body_that_breaks_off_leaves_nothing_held_back() -> None:
    with socket.socket() as line:
        with pytest.raises(ConnectionError), corked(line):
            raise ConnectionError
        assert not is_corked(line)


def test_a_line_that_is_closed_meanwhile_is_its_owners_to_notice() -> None:
    with socket.socket() as line, corked(line):
        line.close()
