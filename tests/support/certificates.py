"""Certificate authorities and certificates for loopback, made for a test."""

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificate(NamedTuple):
    cert: Path
    key: Path


class CertificateAuthority:
    """Signs certificates."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _named(name)
        signed = _certificate(self._subject, self._subject, self._key.public_key(), ca=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())))

    def sign(self, name: str, host: str = "127.0.0.1") -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        host_name = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
        made = _certificate(_named(name), self._subject, key.public_key(), ca=False)
        signed = made.add_extension(host_name, False).sign(self._key, hashes.SHA256())
        files = Certificate(self.folder / f"{name}.cert.pem", self.folder / f"{name}.key.pem")
        files.cert.write_bytes(_pem(signed))
        files.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return files


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, ca: bool
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
