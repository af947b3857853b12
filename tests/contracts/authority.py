"""A throw-away certificate authority, and a proxy, both on this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certified(NamedTuple):
    """The files of an authority and of a server that it has certified."""

    authority: Path
    certificate: Path
    key: Path


def certify(folder: Path, host: str = "127.0.0.1") -> Certified:
    """Make an authority, and a certificate of it for a server on this machine."""
    now = datetime.now(UTC)
    issuer_key, server_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "throw-away authority")])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])

    def made(name: x509.Name, key: Any, *extensions: tuple[Any, bool]) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        )
        for extension, is_critical in extensions:
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(issuer_key, hashes.SHA256())

    public = issuer_key.public_key()
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    root = made(
        issuer, issuer_key, (x509.BasicConstraints(ca=True, path_length=0), True), (usage, True)
    )
    names = x509.SubjectAlternativeName([_general_name(host)])
    leaf = made(
        subject,
        server_key,
        (names, False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(public), False),
    )
    files = Certified(folder / "ca.pem", folder / "hub.pem", folder / "hub.key")
    pem = serialization.Encoding.PEM
    files.authority.write_bytes(root.public_bytes(pem))
    files.certificate.write_bytes(leaf.public_bytes(pem))
    files.key.write_bytes(
        server_key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    files.key.chmod(0o600)
    return files


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class Proxy:
    """A proxy that passes encrypted connections on (CONNECT), and sees nothing of what is said."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.passed = b""  # what clients have sent through it
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(4096)
            self.asked.append(head.partition(b"\r\n")[0])
            host, _, port = head.split()[1].decode().rpartition(":")
            with socket.create_connection((host, int(port))) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server, note=True)
                back.join()

    def _pump(self, source: socket.socket, target: socket.socket, *, note: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self.passed += data if note else b""
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)
