"""Certificate authorities and certificates for loopback, made for a test."""

from pathlib import Path

from folkmoot.host.certificates import CertificateFiles, load_authority, make_certificate


class LoopbackAuthority:
    """Signs certificates; `file` is its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / f"{name}-signed"
        self.folder.mkdir()
        self._authority = load_authority(self.folder, days=1)
        self.file = (self.folder / "ca.pem").rename(folder / f"{name}.pem")

    def sign(self, name: str, host: str = "127.0.0.1") -> CertificateFiles:
        return make_certificate(self._authority, self.folder, name, [host], days=1)
