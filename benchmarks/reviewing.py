"""How long a reviewer waits: `tocsin rules check`, then `tocsin rules test`, over all shipped packs, each a process of its own.

Wall time, as a user sees it; the best of five rounds, since the machine may have other work.
"""

from __future__ import annotations

import subprocess
import sys
import time

ROUNDS = 5


def run() -> dict[str, float]:
    """Seconds: `rules_check_s`, `rules_test_s`, and both together as `rules_check_and_test_s`."""
    check, test = (min(_seconds(command) for _ in range(ROUNDS)) for command in ("check", "test"))
    return {"rules_check_s": check, "rules_test_s": test, "rules_check_and_test_s": check + test}


def _seconds(command: str) -> float:
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-m", "service.cli", "rules", command], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun
