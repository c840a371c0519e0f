"""A sign of life for the watchdog of systemd (`WatchdogSec=` of tocsin.service), which restarts what /healthz calls dead.

systemd restarts a service that exits; of one that hangs it knows only by the sign that stays away. Protocol: sd_notify(3).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence


def sign_of_life(environ: Mapping[str, str], unhealthy: Sequence[str]) -> bool:
    """Tells systemd that this process lives, unless there is a reason why it should be restarted; whether it was told.

    Without systemd's watchdog it does nothing. It raises nothing: a sign that cannot be sent is one that stays away.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if unhealthy or "WATCHDOG_USEC" not in environ or address[:1] not in ("/", "@"):
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as link:
            # systemd reads at once; were its queue full, we would rather be late with this than stand still.
            link.setblocking(False)
            link.connect("\0" + address[1:] if address.startswith("@") else address)
            link.send(b"WATCHDOG=1")
    except OSError:
        return False
    return True
