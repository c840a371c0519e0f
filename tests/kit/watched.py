"""A collector that serves HTTP and does nothing else."""

from __future__ import annotations


class Watched:
    """A collector that says what the test told it to."""

    def __init__(self) -> None:
        self.bad: list[str] = []
        self.waiting: list[str] = []
        self.fails = False
        self.faults: list[str] = []
        self.stale = ""
        self.reloads = 0

    def metrics(self) -> tuple[list[bytes], str]:
        if self.fails:
            raise RuntimeError("the inside of the program")
        return [b"tocsin_build_", b"info 1\n"], "text/plain; version=0.0.4; charset=utf-8"

    def unhealthy(self) -> list[str]:
        return self.bad

    def unready(self) -> list[str]:
        return self.waiting

    def reload(self) -> list[str]:
        self.reloads += 1
        return self.faults

    def waits_for_restart(self) -> str:
        return self.stale
