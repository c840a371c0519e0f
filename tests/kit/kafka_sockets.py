"""Sockets that kafka-python 3.0.12 forgets are closed without a word in tests.

It leaves the socket of a connection that does not come about (refused, given up while it is made, closed with something unsent)
to the collector of garbage. That closes it, which harms nobody, but where warnings are errors it fails whichever test runs by
then. A filter would have to let pass the warning about a socket that we forget ourselves: those two look alike. So the sockets
that kafka-python makes are of a class of their own here.
"""

from __future__ import annotations

import socket
import ssl
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class ForgottenSocket(socket.socket):
    """Closes itself when it goes."""

    def __del__(self) -> None:
        self.close()


class ForgottenTlsSocket(ssl.SSLSocket):
    """The same under TLS."""

    def __del__(self) -> None:
        self.close()


@contextmanager
def closed_when_forgotten() -> Iterator[None]:
    """While it is entered, kafka-python's direct connections are made of these."""
    with warnings.catch_warnings():
        # It reads its schemas by importlib.resources.read_text, deprecated in Python 3.11, back in 3.13.
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.net.inet import KafkaNetSocket
        from kafka.net.transport import KafkaSSLTransport

    made = KafkaSSLTransport._build_ssl_context

    def plain(self: Any, *family: int) -> socket.socket:
        return ForgottenSocket(*family)

    def secured(config: Any) -> ssl.SSLContext:
        context: ssl.SSLContext = made(config)
        context.sslsocket_class = ForgottenTlsSocket
        return context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaNetSocket, "socket", plain)
        patch.setattr(KafkaSSLTransport, "_build_ssl_context", staticmethod(secured))
        yield
