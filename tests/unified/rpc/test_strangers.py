"""What a stranger, a liar and a broken peer can do to a server: nothing but be cut off."""

import os
import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.unified.rpc import address as addresses
from folkmoot.unified.rpc import entrance
from folkmoot.unified.rpc.call import STACKS, Call
from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.connect import connect
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.directory import AddressBook
from folkmoot.unified.rpc.errors import RemoteError, RpcError, Unauthorised, WorkerDied
from folkmoot.unified.rpc.frames import Kind, encode
from folkmoot.unified.rpc.handshake import MAC, MAGIC, OPENING, Caller, Listener, Seal, call_out
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.server import Server

SECRET = b"only this job knows it"
ME = RpcPeer.me("trainer-0", 1)
unpickled: list[str] = []


class Trap:
    """Says when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return unpickled.append, ("trap",)


@pytest.fixture(params=["unix", "tcp"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    methods = RemoteMethods("rollout-0")
    methods.export("echo", lambda x: x)
    made = Server(RpcPeer.me("rollout-0", 1), methods, SECRET)
    unix = request.param == "unix"
    made.listen(f"unix:{tmp_path}/rollout-0" if unix else "tcp:127.0.0.1:0")
    yield made
    made.close()


def at(server: Server) -> str:
    return server.entrance.addresses[0]


def client(server: Server) -> RpcClient:
    return RpcClient("rollout-0", AddressBook({"rollout-0": at(server)}), ME, SECRET)


def ended(stream: socket.socket) -> bool:
    """Whether the other end closes, within some seconds, and says nothing before."""
    stream.settimeout(60)
    try:
        return stream.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_wrong_secret_is_refused_on_both_sides(server: Server) -> None:
    with pytest.raises(Unauthorised, match="does not know the job's secret"):
        connect(at(server), ME, b"another secret of a job")
    assert client(server).call("echo", 1).result(60) == 1


def test_who_shows_no_secret_is_cut_off_before_anything_is_decoded(server: Server) -> None:
    stream = addresses.connect(at(server), 10)
    stream.sendall(Caller(SECRET).opening)
    answer = stream.recv(OPENING + MAC, socket.MSG_WAITALL)
    assert answer.startswith(MAGIC)
    trap = pickle.dumps(((Trap(),), {}))
    frames = b"".join(bytes(piece) for piece in encode(Kind.Call, 1, "echo", [trap]))
    stream.sendall(bytes(MAC) + frames)
    assert ended(stream)
    assert unpickled == []


def test_what_is_no_handshake_is_cut_off(server: Server) -> None:
    stream = addresses.connect(at(server), 10)
    stream.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" + bytes(100))
    assert ended(stream)


@pytest.mark.parametrize("start", [b"", MAGIC, MAGIC + bytes(31)])
def test_a_slow_handshake_ends_at_its_deadline(server: Server, start: bytes) -> None:
    server.entrance.seconds = 0.3
    stream = addresses.connect(at(server), 10)
    stream.sendall(start)
    assert ended(stream)


def test_many_slow_strangers_do_not_keep_a_peer_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "MOST_HANDSHAKES", 5)
    server.entrance.seconds = 60
    strangers = [addresses.connect(at(server), 10) for _ in range(20)]
    assert client(server).call("echo", 1).result(60) == 1
    assert len(server.entrance.handshakes) <= 5
    for stranger in strangers:
        stranger.close()


def test_a_peer_that_sends_no_frames_is_cut_off_and_others_are_not(server: Server) -> None:
    other = client(server)
    assert other.call("echo", 1).result(60) == 1
    stream = addresses.connect(at(server), 10)
    call_out(stream, SECRET)
    stream.sendall(b"\xff" * 64)
    while stream.recv(4096):  # its hello
        pass
    assert other.call("echo", 2).result(60) == 2


@pytest.mark.parametrize("method", ["echo", STACKS, "no such method"])
@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b""],
        [b"junk"],
        [pickle.dumps(5)],
        [pickle.dumps((1, 2))],
        [pickle.dumps(((), {})), b"x"],
    ],
)
def test_a_call_that_makes_no_sense_is_an_error_of_the_call(
    server: Server, method: str, parts: list[bytes]
) -> None:
    line = connect(at(server), ME, SECRET)
    call: Call[object] = Call("rollout-0", method)
    line.submit(call, list(parts))
    with pytest.raises(RemoteError):
        call.result(60)
    assert line.call("echo", 1).result(60) == 1
    line.close()


def test_a_peer_that_does_not_say_hello_first_is_cut_off(server: Server) -> None:
    stream = addresses.connect(at(server), 10)
    keys = call_out(stream, SECRET)
    pieces = encode(Kind.Call, 1, "echo", [pickle.dumps(((Trap(),), {}))])
    if stream.family != socket.AF_UNIX:
        pieces.append(Seal(keys.caller).of(pieces))
    stream.sendall(b"".join(pieces))
    while stream.recv(4096):
        pass
    assert unpickled == []


def test_over_tcp_a_frame_that_somebody_put_in_is_not_decoded() -> None:
    methods = RemoteMethods("rollout-0")
    methods.export("echo", lambda x: x)
    server = Server(RpcPeer.me("rollout-0", 1), methods, SECRET)
    line = connect(server.listen("tcp:127.0.0.1:0"), ME, SECRET)
    assert line.call("echo", 1).result(60) == 1
    pieces = encode(Kind.Call, 99, "echo", [pickle.dumps(((Trap(),), {}))])
    line._stream.send(b"".join(pieces) + bytes(16))
    with pytest.raises(WorkerDied, match="rollout-0"):
        line.call("echo", 2).result(60)
    assert unpickled == []
    server.close()


def test_a_stranger_who_listens_gets_no_calls() -> None:
    """Somebody took the port of an actor that died."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"tcp:127.0.0.1:{stranger.getsockname()[1]}"

        def answer() -> None:
            stream, _ = stranger.accept()
            with stream:
                opening = stream.recv(OPENING, socket.MSG_WAITALL)
                stream.sendall(Listener(b"a guess at the secret").reply(opening))
                assert stream.recv(1) == b""

        thread = threading.Thread(target=answer)
        thread.start()
        made = RpcClient("rollout-0", AddressBook({"rollout-0": address}), ME, SECRET)
        with pytest.raises(Unauthorised, match="does not know the job's secret"):
            made.call("echo", 1).result(60)
        thread.join(60)
        assert not thread.is_alive()


def test_a_mac_cannot_be_sent_back_to_its_maker() -> None:
    """A listener that is called by one who only mirrors."""
    caller, listener = Caller(SECRET), Listener(SECRET)
    reply = listener.reply(caller.opening)
    with pytest.raises(Unauthorised):
        listener.finish(reply[OPENING:])
    caller.answer(reply)
    with pytest.raises(Unauthorised):
        Caller(SECRET).answer(reply)  # a replay: its nonce is another


@given(st.binary(max_size=OPENING + MAC))
def test_no_bytes_pass_for_a_handshake(noise: bytes) -> None:
    with pytest.raises(Unauthorised):
        Caller(SECRET).answer(noise)
    listener = Listener(SECRET)
    try:
        listener.reply(noise)
    except Unauthorised:
        return
    with pytest.raises(Unauthorised):
        listener.finish(noise[:MAC])


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Caller(b"short")


def test_a_socket_is_only_for_its_owner_and_its_path_may_be_long(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120) / "sockets"
    folder.parent.mkdir()
    server = Server(RpcPeer.me("a-0"), RemoteMethods("a-0"), SECRET)
    address = server.listen(f"unix:{folder}/a-0")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "a-0").stat().st_mode & 0o777 == 0o600
    connect(address, ME, SECRET, expect="a-0").close()
    server.close()
    assert os.listdir(folder) == []


@pytest.mark.parametrize("address", ["", "unix", "unix:", "http://x", "tcp:host", "tcp:host:x"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(ValueError, match="is no address: expected"):
        addresses.connect(address, 1)


def test_a_peer_is_told_why_nobody_is_there(tmp_path: Path) -> None:
    with pytest.raises(WorkerDied, match="a-0 cannot be reached at unix:"):
        connect(f"unix:{tmp_path}/a-0", ME, SECRET, expect="a-0")
    with pytest.raises(RpcError, match="cannot be reached at tcp:"):
        connect("tcp:127.0.0.1:1", ME, SECRET)
