"""A coordinator that carries weights itself: over TLS, over cut lines, and between strangers."""

import asyncio
import contextlib
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from folkmoot.core.federation import messages as m
from folkmoot.federated import wire
from folkmoot.federated.model_file.outgoing import OutgoingModel
from folkmoot.federated.model_file.reader import digest_of
from folkmoot.federated.names import CARRIED
from folkmoot.federated.participant.bucket import WeightsUnavailable
from folkmoot.federated.participant.carried import _Storing
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.participant.policy import NotAgreed
from folkmoot.federated.signing import sign_request
from folkmoot.federated.transfer import frames
from folkmoot.federated.wire import RequestRefused
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls
from support.certificates import LoopbackAuthority
from support.federation import (
    RUN,
    RunningFederation,
    carried,
    federation_config,
    running_federation,
    tls_security,
    with_bucket,
)

MANY = 2_000_000


class Grows(Participant):
    def __init__(self, number: int, size: int = MANY) -> None:
        self.own = np.random.default_rng(number).standard_normal(size).astype(np.float32)
        self.samples = 1 + number

    def init_weights(self) -> np.ndarray:
        return self.own

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        return weights + self.own, self.samples, {}


def key_file(folder: Path, number: int) -> Path:
    """The same identities everywhere: their order is the order of summation."""
    path = folder / f"key{number}"
    path.write_text(f"{number + 1:064x}\n")
    return path


async def test_over_tls_the_model_has_the_bits_it_has_in_a_folder(tmp_path: Path) -> None:
    authority = LoopbackAuthority(tmp_path, "ca")
    security = tls_security(authority, mutual=True)
    tls = ClientTls(authority.file, *authority.sign("client"))
    models = []
    for url in (CARRIED, str(tmp_path / "shared")):
        folder = tmp_path / f"for-{len(models)}"
        rules = {"rounds": 3, "min_participants": 3}
        config = with_bucket(federation_config(folder, rules, security=security), url=url)
        async with running_federation(folder, config) as w:
            parts = [
                w.take_part(Grows(n, 100_000), identity=str(key_file(folder, n)), tls=tls)
                for n in range(3)
            ]
            await asyncio.gather(*parts)
            await w.server.finished()
            models.append(digest_of(w.coordinator.store.global_path(3)))
    assert models[0] == models[1]


async def test_who_shows_no_certificate_where_one_is_asked_for_gets_no_weights(
    tmp_path: Path,
) -> None:
    authority = LoopbackAuthority(tmp_path, "ca")
    security = tls_security(authority, mutual=True)
    config = with_bucket(federation_config(tmp_path, {}, security=security), url=CARRIED)
    async with running_federation(tmp_path, config) as w:

        def speak() -> bytes:
            context = ssl.create_default_context(cafile=authority.file)
            with (
                socket.create_connection(("127.0.0.1", w.server.service.weights_port)) as bare,
                context.wrap_socket(bare, server_hostname="127.0.0.1") as line,
            ):
                line.settimeout(60)
                line.sendall(frames.encode_frame(wire.TransferRequest()))
                return line.recv(1)

        with pytest.raises(OSError, match=r"(?i)certificate|alert|reset|EOF"):
            await asyncio.to_thread(speak)


class CuttingProxy:
    """Lets so many bytes pass on each line, then cuts it; counts what came through each way."""

    def __init__(self, port: int, allowance: int) -> None:
        self._to, self._allowance = port, allowance
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lines, self.carried = 0, 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.lines += 1
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        # Both are closed in the end: one that is only shut down lets a sender wait for ever.
        with near, socket.create_connection(("127.0.0.1", self._to)) as far:
            left = [self._allowance]
            back = threading.Thread(target=self._pump, args=(far, near, left), daemon=True)
            back.start()
            self._pump(near, far, left)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, left: list[int]) -> None:
        with contextlib.suppress(OSError):
            while (got := source.recv(65536)) and (left[0] > 0 or self._allowance == 0):
                left[0] -= len(got)
                self.carried += len(got)
                target.sendall(got)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@contextlib.contextmanager
def through(w: RunningFederation, allowance: int) -> Iterator[CuttingProxy]:
    """What the coordinator tells as its port for weights is the proxy's."""
    proxy = CuttingProxy(w.server.service.weights_port, allowance)
    w.server.service.weights_port = proxy.port
    try:
        yield proxy
    finally:
        proxy.close()


async def test_a_cut_line_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    size = 4 * MANY
    async with running_federation(tmp_path, carried(tmp_path, rounds=3)) as w:
        with through(w, allowance=3 << 20) as proxy:
            await w.take_part(Grows(1))
            await w.server.finished()
            assert proxy.lines >= 10, "it was cut often"
            # Three updates go up and two models come down. What was in buffers when a line was cut
            # goes again; beginning again each time would never end.
            assert proxy.carried < 3 * 5 * size
    first = Grows(1).own
    with w.coordinator.store.global_path(3).open("rb") as file:
        got = np.frombuffer(file.read()[-size:], np.float32)
    np.testing.assert_array_equal(got, (first + first) + first)


async def test_an_update_is_combined_as_it_was_judged_whatever_its_sender_sends_later(
    tmp_path: Path,
) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=1, min_participants=2)) as w:
        a, weights = await w.introduced("a")
        b, others = await w.introduced("b")
        good = {"weights": np.ones(3, np.float32)}
        digest = await asyncio.to_thread(weights.write_update, 0, "", good)
        await a.end(digest)
        bad = {"weights": np.full(3, 1e9, np.float32)}
        with pytest.raises(RequestRefused, match="ALREADY_EXISTS"):
            await asyncio.to_thread(weights.write_update, 0, "", bad)
        await b.end(await asyncio.to_thread(others.write_update, 0, "", good))
        assert list(await w.global_of(1)) == [1.0, 1.0, 1.0]


async def test_an_update_that_was_announced_and_did_not_come_is_missing(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=1)) as w:
        a, weights = await w.introduced("a")
        digest = await asyncio.to_thread(weights.write_update, 0, "", {"w": np.zeros(3)})
        with pytest.raises(Exception, match="there is no object"):
            await a.end(bytes(32))
        # A second body takes the place of the first, which nobody announced.
        second = await asyncio.to_thread(weights.write_update, 0, "", {"w": np.ones(3)})
        with pytest.raises(Exception, match="there is no object"):
            await a.end(digest)
        await a.end(second)
        await w.server.finished()


async def test_who_is_not_called_to_a_round_neither_gets_nor_gives(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, min_participants=2)) as w:
        _, weights = await w.introduced("a")
        with pytest.raises(RequestRefused, match="FAILED_PRECONDITION"):
            await asyncio.to_thread(weights.read_global, 0, bytes(32))
        with pytest.raises(RequestRefused, match="FAILED_PRECONDITION"):
            await asyncio.to_thread(weights.write_update, 0, "", {"w": np.zeros(3)})


def say(port: int, frame: bytes) -> bytes:
    """What a stranger hears: a frame's body, or nothing when it is hung up on."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.sendall(frame)
        try:
            return frames.read_frame(line, wire.TransferAnswer).reason.encode()
        except ConnectionResetError:
            return b""


async def test_strangers_are_refused_and_nonsense_is_hung_up_on(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path)) as w:
        (known,) = await w.join("a")
        port = w.server.service.weights_port

        async def said(frame: bytes) -> bytes:
            return await asyncio.to_thread(say, port, frame)

        store = wire.StoreRequest(run_id=RUN, round=0, size=10, token=secrets.token_bytes(16))
        unsigned = wire.TransferRequest(store=store)
        assert b"not signed" in await said(frames.encode_frame(unsigned))
        sign_request(known.signer, "Store", store, known.session)
        store.size = 11
        altered = wire.TransferRequest(store=store)
        assert b"signature" in await said(frames.encode_frame(altered))
        sign_request(known.signer, "Store", store, known.session)
        signed = frames.encode_frame(wire.TransferRequest(store=store))
        assert await said(signed) == b""  # granted: it waits for the body
        assert b"replay" in await said(signed)
        store.size = 1 << 60
        sign_request(known.signer, "Store", store, known.session)
        large = wire.TransferRequest(store=store)
        assert b"at most" in await said(frames.encode_frame(large))
        assert await said((1 << 31).to_bytes(4, "little") + b"x" * 100) == b""
        assert await said(b"\x05\0\0\0\xff\xff\xff\xff\xff") == b""
        assert b"fetch, store, end and call" in await said(
            frames.encode_frame(wire.TransferRequest())
        )


async def test_silent_lines_hold_nobody_up(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=2)) as w:
        address = ("127.0.0.1", w.server.service.weights_port)
        silent = [socket.create_connection(address) for _ in range(200)]
        for line in silent[::2]:
            line.sendall(b"\x10")
        await asyncio.wait_for(w.take_part(Grows(1, 1000)), 120)
        await w.server.finished()
        for line in silent:
            line.close()


async def test_an_update_is_hashed_whole_whatever_the_coordinator_says_it_has() -> None:
    """After a cut it may have more than we know to be sent; it may also just say so."""
    arrays = {"weights": np.arange(200_000, dtype=np.float32)}
    near, far = socket.socketpair()
    with near, far:
        storing = _Storing(0, arrays)
        whole = b"".join(OutgoingModel(arrays).pieces())
        claimed = wire.TransferAnswer(offset=frames.PIECE + 5)
        far.sendall(frames.encode_frame(claimed) + frames.encode_frame(wire.TransferAnswer()))
        reading = asyncio.create_task(
            asyncio.to_thread(_read_all, far, len(whole) - frames.PIECE - 5)
        )
        await asyncio.to_thread(storing.move, near, lambda: None)
        assert await reading == whole[frames.PIECE + 5 :]
        assert storing.digest() == blake3(whole).digest()
        far.sendall(frames.encode_frame(wire.TransferAnswer(offset=len(whole) + 1)))
        with pytest.raises(WeightsUnavailable, match="more of our update"):
            _Storing(0, arrays).move(near, lambda: None)


def _read_all(line: socket.socket, count: int) -> bytes:
    body = bytearray(count)
    frames.fill(line, memoryview(body))
    return bytes(body)


async def test_bodies_that_stop_half_way_hold_nobody_up(tmp_path: Path) -> None:
    """There are more of them than there could be threads."""
    many = 40
    async with running_federation(tmp_path, carried(tmp_path, min_participants=many + 1)) as w:
        *slow, (_, weights) = [await w.introduced(f"p{n}") for n in range(many + 1)]
        stopped = []
        for one, _ in slow:
            store = wire.StoreRequest(round=0, size=100_000, token=secrets.token_bytes(16))
            asked = wire.TransferRequest(store=one.signed("Store", store))
            line = socket.create_connection(("127.0.0.1", w.server.service.weights_port), 60)
            stopped.append(line)
            line.sendall(frames.encode_frame(asked))
            assert not (await asyncio.to_thread(frames.read_frame, line, wire.TransferAnswer)).code
            line.sendall(bytes(50_000))
        update = asyncio.to_thread(weights.write_update, 0, "", {"w": np.ones(3)})
        assert len(await asyncio.wait_for(update, 50)) == 32
        for line in stopped:
            line.close()


async def test_an_update_is_given_and_told_of_on_one_line(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=1)) as w:
        a, weights = await w.introduced("a")
        arrays = {"weights": np.ones(3, np.float32)}
        end = wire.EndTrainingRoundRequest(round=0, number_samples=1)
        assert await asyncio.to_thread(weights.deliver, arrays, end)
        assert list(await w.global_of(1)) == [1.0, 1.0, 1.0]
        assert (await a.end(end.digest)).again


async def test_a_bad_update_is_refused_on_its_line(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=1)) as w:
        _, weights = await w.introduced("a")
        arrays = {"weights": np.full(3, np.nan, np.float32)}
        end = wire.EndTrainingRoundRequest(round=0, number_samples=1)
        with pytest.raises(RequestRefused, match="must be finite"):
            await asyncio.to_thread(weights.deliver, arrays, end)
        assert w.state.strikes


async def test_what_is_too_long_for_a_line_is_said_over_grpc(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=1)) as w:
        a, weights = await w.introduced("a")
        arrays = {"weights": np.ones(3, np.float32)}
        history = '{"loss": [' + ", ".join(["0.5"] * 5000) + "]}"
        end = wire.EndTrainingRoundRequest(round=0, number_samples=1, history=history)
        assert not await asyncio.to_thread(weights.deliver, arrays, end)
        assert not (await a.call("EndTrainingRound", end)).again
        assert list(await w.global_of(1)) == [1.0, 1.0, 1.0]


async def test_an_end_that_another_key_answers_is_not_believed(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=1)) as w:
        _, weights = await w.introduced("a")
        w.coordinator.identity = Identity.random()
        end = wire.EndTrainingRoundRequest(round=0, number_samples=1)
        with pytest.raises(NotAgreed, match="shows the key"):
            await asyncio.to_thread(weights.deliver, {"weights": np.ones(3, np.float32)}, end)


async def test_deliveries_of_a_moment_are_one_record(tmp_path: Path) -> None:
    async with running_federation(tmp_path, carried(tmp_path, rounds=1, min_participants=5)) as w:
        ends = []
        for name in "abcde":
            a, _ = await w.introduced(name)
            ends.append(m.Delivered(a.participant_id, 0, "00", 1))
        durable, steps = w.coordinator._durable, []
        durable._act = lambda step, act=durable._act: (steps.append(step), act(step))
        effects = await asyncio.gather(*map(w.coordinator.submit_together, ends[:4]))
        assert [type(some[0]) for some in effects] == [m.Counted] * 4
        assert [len(step.events) for step in steps] == [4]
        durable._journal.close()
        with pytest.raises(OSError):
            await w.coordinator.submit_together(ends[4])
        assert len(w.state.deliveries) == 4, "what was not recorded did not happen"
