"""https: what is served, what is refused, and a certificate that is renewed while the collector runs."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from alerts.redaction import Redactor
from rules.config_errors import ConfigErrors
from service import api_client, config
from service.api_client import Api, Unreachable
from service.config import CertificateFiles
from service.http.app import build
from service.http.server import HttpServer
from service.http.tls import CertificateError
from service.running import Running
from service.store.store import Store
from tests.kit.asking import http_client
from tests.kit.pipelines import RULES
from tests.kit.receivers import CERTIFICATE
from tests.kit.running import ALERTS
from tests.kit.watched import Watched

RENEWED = CERTIFICATE.with_name("loopback_renewed.pem")


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    """The certificate and its key in one file, as a copy that may change."""
    (tmp_path / "tls.pem").write_bytes(CERTIFICATE.read_bytes())
    return CertificateFiles(tmp_path / "tls.pem", tmp_path / "tls.pem")


@pytest.fixture
def server(files: CertificateFiles) -> Iterator[HttpServer]:
    with Store() as store:
        started = HttpServer("127.0.0.1", 0, files)
        started.start(build(store, Watched()))
        yield started
        started.stop()


def shown(server: HttpServer) -> bytes | None:
    """The certificate that a new connection is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((server.host, server.port), 10) as plain, context.wrap_socket(plain) as connection:
        return connection.getpeercert(binary_form=True)


def test_it_is_served_to_whoever_trusts_it(server: HttpServer) -> None:
    assert server.url.startswith("https://127.0.0.1:")
    with http_client(verify=ssl.create_default_context(cafile=CERTIFICATE)) as client:
        assert client.get(f"{server.url}/healthz").json() == {"ok": True, "reasons": []}
    assert api_client.incidents(Api(server.url, ca_file=CERTIFICATE)) == {"incidents": []}
    with pytest.raises(Unreachable, match="no TLS"):
        api_client.incidents(Api(server.url))


def test_plain_http_and_old_tls_get_nothing(server: HttpServer) -> None:
    with http_client() as client, pytest.raises(httpx.HTTPError):
        client.get(f"http://127.0.0.1:{server.port}/healthz")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection((server.host, server.port), 10) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain)


def test_a_renewed_certificate_is_shown_and_a_broken_one_is_not(server: HttpServer, files: CertificateFiles) -> None:
    first = shown(server)
    server.renew()
    assert shown(server) == first
    files.certificate.write_bytes(RENEWED.read_bytes()[:300])
    server.renew()
    assert shown(server) == first, "half written: the one before stays"
    files.certificate.write_bytes(RENEWED.read_bytes())
    server.renew()
    assert shown(server) not in (first, None)
    files.certificate.unlink()
    server.renew()
    assert shown(server) not in (first, None)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "cannot be read: No such file"),
        (b"", "are no certificate with its key"),
        (b"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n", "are no certificate with its key"),
    ],
)
def test_what_is_no_certificate(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "tls.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CertificateError, match=why):
        HttpServer("127.0.0.1", 0, CertificateFiles(path, path))


def test_a_certificate_with_another_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(RENEWED.read_bytes().partition(b"-----BEGIN CERT")[0])
    with pytest.raises(CertificateError, match="KEY_VALUES_MISMATCH") as raised:
        HttpServer("127.0.0.1", 0, CertificateFiles(CERTIFICATE, tmp_path / "key.pem"))
    assert "PRIVATE" not in str(raised.value)


def test_a_collector_serves_it_and_the_session_is_for_https_only(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test.yaml").write_text(RULES)
    (tmp_path / "alerts.yaml").write_text(ALERTS)
    (tmp_path / "tls.pem").write_bytes(CERTIFICATE.read_bytes())
    text = (
        "http: {port: 0, tls: {certificate: tls.pem, key: tls.pem}, tokens: [{name: olga, role: operator, token: env:OLGA}]}\n"
        "rules: {shipped: false, dirs: [rules]}\nalerts: alerts.yaml\n"
    )
    running = Running(
        config.parse(text, "tocsin.yaml", tmp_path),
        environ={"OLGA": "olga-secret-token"},
        redactor=Redactor(),
        write=lambda _: None,
    )
    running.start()
    try:
        url, trusted = running.http.url, ssl.create_default_context(cafile=CERTIFICATE)
        with http_client(base_url=url, verify=trusted, headers={"origin": url}) as client:
            answer = client.post("/login", data={"token": "olga-secret-token", "next": "/"})
            assert answer.status_code == 303, answer.text
            assert "; secure" in answer.headers["set-cookie"].lower()
    finally:
        assert running.stop()


def test_both_files_are_named() -> None:
    with pytest.raises(ConfigErrors, match="key"):
        config.parse("http: {tls: {certificate: tls.pem}}", "tocsin.yaml")
