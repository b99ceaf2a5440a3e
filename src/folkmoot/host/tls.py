"""TLS by files in PEM, for the side that listens and for the side that connects."""

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


class ClientTls(msgspec.Struct, frozen=True):
    """The authority to trust (None: those of this machine), and our own for mutual TLS."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.cert))


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
