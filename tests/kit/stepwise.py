"""A folder of dumps that is followed step by step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.kit import dump_following, dumps


class Following(dump_following.Following):
    """A follower of a verl folder, or of another one with a file per step, and what its trainer writes."""

    def __init__(self, path: Path, state: Path, name: str = "verl-rollouts", **how: Any) -> None:
        self.writes = 0
        super().__init__(path, state, name, **how)

    def write(self, step: int, *, seed: int = 0, rows: int | None = None, text: str | None = None) -> Path:
        """Write a step as verl does; each write is a second later than the one before."""
        path = self.path / f"{step}.jsonl"
        made = dumps.verl_rows(dumps.make(step, seed=seed), step)
        if text is None:
            dumps.write(path, made[:rows])
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.touch(path)
        return path

    def touch(self, path: Path) -> None:
        self.writes += 1
        os.utime(path, ns=(self.writes * 10**9, self.writes * 10**9))
