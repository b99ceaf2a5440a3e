"""TLS by files in PEM, for the side that listens and for the side that connects.

`credentials` are for gRPC, `context` is for plain sockets: the same files, the same demands.
"""

import ssl
from pathlib import Path

import grpc
import msgspec


class ServerTls(msgspec.Struct, frozen=True):
    """Our certificate and its key. With `client_ca`, clients must show one that it signed."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_credentials(
            [pair], _read(self.client_ca), require_client_auth=self.client_ca is not None
        )

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert, self.key)
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.client_ca)
        return context


class ClientTls(msgspec.Struct, frozen=True):
    """The authority to trust (None: those of this machine), and our own for mutual TLS."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


def server_tls(
    cert: Path | None, key: Path | None, client_ca: Path | None = None
) -> ServerTls | None:
    """As settings give the files; None for no TLS, ValueError for a part of it."""
    if (cert is None) != (key is None):
        raise ValueError("TLS needs both a certificate and its key")
    if cert is None or key is None:
        if client_ca is not None:
            raise ValueError("to demand certificates of clients we need our own, and its key")
        return None
    return ServerTls(cert, key, client_ca)


def client_tls(ca: Path | None, cert: Path | None, key: Path | None) -> ClientTls | None:
    """As settings give the files; None for no TLS, ValueError for a part of it."""
    if (cert is None) != (key is None):
        raise ValueError("our certificate and its key go together: give both, or neither")
    if cert is not None and ca is None:
        raise ValueError("a certificate of ours needs the CA of the server's beside it")
    return ClientTls(ca, cert, key) if ca else None


def _read(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None
