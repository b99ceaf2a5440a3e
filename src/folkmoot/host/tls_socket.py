"""TLS for what carries models: with the OpenSSL that `cryptography` brings, by pyOpenSSL.

The interpreter's is what its machine happens to have; before 3.1 it encrypts at half the speed on
processors with wide instructions. `TlsSocket` has the methods of a socket that we and `http.client`
use, and fails as `ssl` does: with an `OSError`.
"""

from __future__ import annotations

import importlib
import io
import ipaddress
import socket
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from OpenSSL import SSL
from service_identity import CertificateError, VerificationError
from service_identity.pyopenssl import verify_hostname, verify_ip_address

from folkmoot.host.tls import ClientTls, ServerTls

#: As much as TLS has in a record: reading gives one at a time.
RECORD = 1 << 14
#: A call writes all it was given, not one record. OpenSSL has named it so; pyOpenSSL does not.
_PARTIAL_WRITE = 1
CLOSED = "the line was closed"


def server_context(tls: ServerTls) -> SSL.Context:
    context = _context(SSL.TLS_SERVER_METHOD)
    _use(context, tls.cert, tls.key)
    if tls.client_ca is not None:
        _trust(context, tls.client_ca)
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT)
    return context


def client_context(tls: ClientTls) -> SSL.Context:
    context = _context(SSL.TLS_CLIENT_METHOD)
    context.set_verify(SSL.VERIFY_PEER)
    if tls.ca is not None:
        _trust(context, tls.ca)
    else:
        _trust_usual(context)
    if tls.cert is not None and tls.key is not None:
        _use(context, tls.cert, tls.key)
    return context


def _context(method: int) -> SSL.Context:
    context = SSL.Context(method)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.clear_mode(_PARTIAL_WRITE)
    # A line that waits holds no buffers.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
    return context


def _use(context: SSL.Context, cert: Path, key: Path) -> None:
    try:
        context.use_certificate_chain_file(str(cert))
        context.use_privatekey_file(str(key))
    except SSL.Error as error:
        raise ValueError(
            f"{cert} and {key} are no certificate with its key: {_reason(error)}"
        ) from None


def _trust(context: SSL.Context, authority: Path) -> None:
    try:
        context.load_verify_locations(str(authority))
    except SSL.Error as error:
        raise ValueError(f"{authority} holds no certificates to trust: {_reason(error)}") from None


def _trust_usual(context: SSL.Context) -> None:
    """Whom the interpreter trusts, wherever its machine has them."""
    known = ssl.get_default_verify_paths()
    if known.cafile or known.capath:
        context.load_verify_locations(known.cafile, known.capath)
    else:
        context.set_default_verify_paths()


def _reason(error: SSL.Error) -> str:
    """OpenSSL gives a list of errors, each with its reason at the end."""
    errors = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return "; ".join(str(each[-1]) for each in errors) or "TLS failed"


class TlsSocket:
    """A connected socket under TLS. It blocks for as long as `settimeout` says, or not at all."""

    def __init__(self, context: SSL.Context, bare: socket.socket) -> None:
        """`do_handshake` comes next. The bare socket is ours from now on."""
        self.bare = bare
        self._tls = SSL.Connection(context, bare)
        self._read, self._write = _calls(self._tls)
        self._timeout: float | None = bare.gettimeout()
        self.settimeout(self._timeout)

    @classmethod
    def connect(cls, context: SSL.Context, bare: socket.socket, host: str) -> TlsSocket:
        """To a server whose certificate is for `host`; else an `OSError`."""
        line = cls(context, bare)
        line._tls.set_connect_state()
        address = _address(host)
        if address is None:
            line._tls.set_tlsext_host_name(host.encode("idna"))
        line.do_handshake()
        try:
            if address is None:
                verify_hostname(line._tls, host)
            else:
                verify_ip_address(line._tls, host)
        except (CertificateError, VerificationError) as error:
            raise ssl.SSLCertVerificationError(
                f"the certificate that was shown is not for {host}: {error}"
            ) from None
        return line

    @classmethod
    def accept(cls, context: SSL.Context, bare: socket.socket) -> TlsSocket:
        line = cls(context, bare)
        line._tls.set_accept_state()
        return line

    def fileno(self) -> int:
        return self.bare.fileno()

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.bare.setsockopt(level, name, value)

    def gettimeout(self) -> float | None:
        return self._timeout

    def setblocking(self, blocking: bool) -> None:
        self.settimeout(None if blocking else 0.0)

    def settimeout(self, seconds: float | None) -> None:
        """0.0 not to wait at all. The kernel keeps the time: no call more for each record.

        A signal whose handler runs in this thread ends the wait as if the time were over.
        """
        self._timeout = seconds
        self.bare.setblocking(seconds != 0)
        if seconds != 0:
            limit = _timeval(seconds) if seconds else bytes(struct.calcsize("ll"))
            self.bare.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self.bare.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def do_handshake(self) -> None:
        try:
            self._tls.do_handshake()
        except SSL.Error as error:
            raise self._failure(error) from None

    def send(self, data: memoryview | bytes) -> int:
        try:
            return self._write(data)
        except SSL.Error as error:
            raise self._failure(error) from None

    def sendall(self, data: memoryview | bytes) -> None:
        done, view = 0, memoryview(data)
        while done < len(view):
            done += self.send(view[done:])

    def recv(self, count: int) -> bytes:
        room = bytearray(min(count, RECORD))
        return bytes(room[: self.recv_into(memoryview(room))])

    def recv_into(self, room: memoryview) -> int:
        try:
            return self._read(room)
        except SSL.ZeroReturnError:
            return 0
        except SSL.Error as error:
            raise self._failure(error) from None

    def makefile(self, mode: str) -> io.BufferedReader:
        """For `http.client`, which reads answers from it."""
        return io.BufferedReader(_Reading(self))

    def shutdown(self, how: int) -> None:
        """Of the bare socket: whoever waits for the line is woken. From whatever thread."""
        self.bare.shutdown(how)

    def close(self) -> None:
        self.bare.close()

    def _failure(self, error: SSL.Error) -> OSError:
        if isinstance(error, SSL.WantReadError | SSL.WantWriteError):
            if self._timeout != 0:
                return TimeoutError("the line stood still for too long")
            if isinstance(error, SSL.WantReadError):
                return ssl.SSLWantReadError("nothing to read yet")
            return ssl.SSLWantWriteError("no room to write yet")
        if isinstance(error, SSL.SysCallError):
            number, text = error.args
            return OSError(number, text) if number > 0 else ConnectionResetError(CLOSED)
        if isinstance(error, SSL.ZeroReturnError):
            return ConnectionResetError(CLOSED)
        return ssl.SSLError(_reason(error))


class _Reading(io.RawIOBase):
    """A socket as a file; it is closed by itself."""

    def __init__(self, line: TlsSocket) -> None:
        self._line = line

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        return self._line.recv_into(memoryview(room))


def _calls(tls: SSL.Connection) -> tuple[Callable[[Any], int], Callable[[Any], int]]:
    """What reads into memory and what writes from it: as pyOpenSSL does, without what it adds.

    It reads into memory of its own and copies that, and asks OpenSSL what went wrong when the count
    says that nothing did: three times the interpreter's lock for each record of 16 KB, not once.
    It does not promise what these calls stand on: where any of it is missing they are its own.
    """
    try:
        util = importlib.import_module("OpenSSL._util")
        connection, fail = tls._ssl, tls._raise_ssl_error
        view, ssl_read, ssl_write = util.ffi.from_buffer, util.lib.SSL_read, util.lib.SSL_write
    except (ImportError, AttributeError):
        return lambda room: tls.recv_into(room, RECORD), tls.send

    def read(room: Any) -> int:
        got: int = ssl_read(connection, view(room), len(room))
        if got <= 0:
            fail(connection, got)
        return got

    def write(data: Any) -> int:
        got: int = ssl_write(connection, view(data), len(data))
        if got <= 0:
            fail(connection, got)
        return got

    return read, write


def _timeval(seconds: float) -> bytes:
    """As the kernel takes it, to whom nothing at all means for ever."""
    whole, part = divmod(max(1, round(seconds * 1e6)), 1_000_000)
    return struct.pack("ll", whole, part)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
