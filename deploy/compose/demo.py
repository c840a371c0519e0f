"""Plays the recorded trainings of `tocsin demo` into a Kafka topic, a step of each after the other.

    python demo.py HOST:PORT [TOPIC]     TOCSIN_DEMO_PAUSE: seconds between two steps, default 1

The runs end up in the collector under their own names; played twice, the second time are duplicates and changes nothing.
Exit status 1 when the broker did not take everything within half a minute of the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from service.demo.runs import rounds
from tocsin.transports import RECORDS_TOPIC, from_url

CLOSE_SECONDS = 30.0


def main(server: str, topic: str, pause: float) -> int:
    """The exit status."""
    sent = 0
    with tempfile.TemporaryDirectory(prefix="tocsin-demo-") as folder:
        transport = from_url(f"kafka://{server}/{topic}", fallback=Path(folder))
        try:
            for messages in rounds():
                transport.send(messages)
                sent += len(messages)
                time.sleep(pause)
        finally:
            transport.close(timeout=CLOSE_SECONDS)
    delivered = transport.counts().delivered
    sys.stderr.write(f"{delivered} of {sent} records delivered\n")
    return 0 if delivered == sent else 1


if __name__ == "__main__":
    sys.exit(
        main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else RECORDS_TOPIC, float(os.environ.get("TOCSIN_DEMO_PAUSE", "1")))
    )
