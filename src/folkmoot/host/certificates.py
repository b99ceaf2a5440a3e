"""Certificates of one's own: an authority, and what it signs, as files in PEM.

For people who know each other and have no authority to ask: whoever trusts `ca.pem` trusts what it
signed, and nobody else. Keys can be read by their owner only, and nothing that is there is
written over.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from folkmoot.host.files import StagedFile

USES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


class CertificateFiles(NamedTuple):
    cert: Path
    key: Path


class CertificateAuthority(NamedTuple):
    """Who signs: its certificate (to hand out) and its key (to keep)."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def load_authority(folder: Path, days: int) -> CertificateAuthority:
    """The authority in `folder`: `ca.pem` and `ca.key`; made when neither is there."""
    cert, key = folder / "ca.pem", folder / "ca.key"
    if not cert.exists() and not key.exists():
        _make_authority(cert, key, days)
    private = serialization.load_pem_private_key(key.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{key} is not a key that we made; use another folder")
    return CertificateAuthority(x509.load_pem_x509_certificate(cert.read_bytes()), private)


def make_certificate(
    authority: CertificateAuthority, folder: Path, name: str, hosts: Sequence[str], days: int
) -> CertificateFiles:
    """`NAME.pem` and `NAME.key`, good for these hosts (names or addresses) and as a client."""
    key = ec.generate_private_key(ec.SECP256R1())
    built = _builder(_subject(name), authority.certificate.subject, key, days)
    built = built.add_extension(x509.BasicConstraints(False, None), critical=True)
    built = built.add_extension(x509.ExtendedKeyUsage(USES), critical=False)
    if hosts:
        alternatives = x509.SubjectAlternativeName([_host(host) for host in hosts])
        built = built.add_extension(alternatives, critical=False)
    files = CertificateFiles(folder / f"{name}.pem", folder / f"{name}.key")
    _write(files, built.sign(authority.key, hashes.SHA256()), key)
    return files


def _make_authority(cert: Path, key: Path, days: int) -> None:
    private = ec.generate_private_key(ec.SECP256R1())
    # Two authorities of the same name would be taken for one another.
    subject = _subject(f"folkmoot {x509.random_serial_number():x}"[:40])
    built = _builder(subject, subject, private, days)
    built = built.add_extension(x509.BasicConstraints(True, 0), critical=True)
    _write(CertificateFiles(cert, key), built.sign(private, hashes.SHA256()), private)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks differ: whoever is an hour behind can use it all the same.
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(
    files: CertificateFiles, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for path in files:
        if path.exists():
            raise FileExistsError(f"{path} is there already; remove it, or use another name")
    with StagedFile(files.key) as staged:
        os.chmod(staged.staging, 0o600)
        staged.write(private)
        staged.commit(create=True)
    with StagedFile(files.cert) as staged:
        staged.write(certificate.public_bytes(serialization.Encoding.PEM))
        staged.commit(create=True)
