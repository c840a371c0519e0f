"""uvicorn on a thread of its own, on a socket that is bound before anything else starts."""

from __future__ import annotations

import socket
import threading

import uvicorn
from starlette.types import ASGIApp

from service.config import CertificateFiles
from service.http.patience import PatientProtocol
from service.http.tls import Certificate

_STOP_SECONDS = 5.0


class CannotListen(Exception):
    """The address is taken or not ours."""


class HttpServer:
    """Listens from construction on, answers from `start` to `stop`."""

    def __init__(self, host: str, port: int, tls: CertificateFiles | None = None) -> None:
        """Bind. Port 0 takes a free one. Raises CannotListen, CertificateError."""
        self._certificate = None if tls is None else Certificate(tls)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, port))
            self._socket.listen(128)  # so that who asks before the thread runs waits instead of being refused
        except OSError as error:
            self._socket.close()
            why = error.strerror or error
            raise CannotListen(f"cannot listen on {host}:{port}: {why} (see http.host, http.port)") from error
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._certificate is None else 'https'}://{host}:{self.port}"

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            http=PatientProtocol,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            limit_concurrency=256,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=2,
        )
        config.load()
        config.ssl = None if self._certificate is None else self._certificate.context
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="tocsin-http", daemon=True
        )
        self._thread.start()

    def renew(self) -> None:
        """Take a certificate that has changed; any thread may ask."""
        if self._certificate is not None:
            self._certificate.renew()

    def stop(self) -> None:
        """Finish the answers under way and close."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_SECONDS)
        self._socket.close()
