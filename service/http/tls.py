"""The certificate that the HTTP service shows: TLS 1.2 or later, taken anew when its files change.

Errors:

    CertificateError     the files cannot be read, or do not belong together; the text names them, never what is in them
"""

from __future__ import annotations

import hashlib
import logging
import ssl

from service.config import CertificateFiles

log = logging.getLogger(__name__)


class CertificateError(ValueError):
    """Says which file is wrong."""


class Certificate:
    """`context` is for the server; new connections see what `renew` took last."""

    def __init__(self, files: CertificateFiles) -> None:
        """Raises CertificateError."""
        self._files = files
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.options |= ssl.OP_NO_RENEGOTIATION
        self._seen = self._look()
        _load(self.context, files)

    def renew(self) -> bool:
        """Take the files if they have changed; those of before stay when the new ones are no pair (half written, say)."""
        seen = self._look()
        if seen == self._seen:
            return False
        try:
            _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._files)  # a pair that does not fit would break ours
            _load(self.context, self._files)
        except CertificateError as error:
            log.warning("the new certificate is not taken: %s", error)
            return False
        self._seen = seen
        log.info("a new certificate is in force: %s", self._files.certificate)
        return True

    def _look(self) -> bytes:
        digest = hashlib.sha256()
        for path in self._files:
            try:
                digest.update(hashlib.sha256(path.read_bytes()).digest())
            except OSError:
                digest.update(b"none")
        return digest.digest()


def _load(context: ssl.SSLContext, files: CertificateFiles) -> None:
    try:
        # An encrypted key would make OpenSSL ask on the terminal; an empty password is refused instead.
        context.load_cert_chain(files.certificate, files.key, password="")
    except ssl.SSLError as error:
        why = error.reason or "no PEM"
        raise CertificateError(f"{files.certificate} and {files.key} are no certificate with its key: {why}") from None
    except OSError as error:
        raise CertificateError(f"{files.certificate} or {files.key} cannot be read: {error.strerror}") from None
