"""A PagerDuty that keeps what it is told, with its pages as its people see them. Misbehaviour comes by script."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.kit.receivers import Behaviour, FakeServer, Reply, Request


class FakePagerDuty(FakeServer):
    """The Events API v2."""

    def __init__(self, script: Sequence[Behaviour] = ()) -> None:
        super().__init__(script)
        self.events: list[dict[str, Any]] = []
        """What was taken, in order."""
        self.opened: Counter[str] = Counter()
        """How often somebody was woken, by dedup key: a trigger while none is open."""
        self.open: set[str] = set()
        self.acknowledged: set[str] = set()
        self.revoked = False
        """Whether the key is refused, as one is that somebody deleted."""

    def serve(self, request: Request) -> Reply:
        event = request.json()
        if self.revoked:
            return Reply(403, b'{"status":"invalid key"}')
        self.events.append(event)
        key = event["dedup_key"]
        match event["event_action"]:
            case "trigger":
                if key not in self.open:
                    self.opened[key] += 1
                    self.open.add(key)
            case "acknowledge":
                if key in self.open:
                    self.acknowledged.add(key)
            case "resolve":
                self.open.discard(key)
                self.acknowledged.discard(key)
        return Reply(202, json.dumps({"status": "success", "message": "Event processed", "dedup_key": key}).encode())

    def actions(self, key: str) -> list[str]:
        """What was said under a key, in order; repeats, of which it makes nothing, once."""
        said: list[str] = []
        for event in self.events:
            if event["dedup_key"] == key and said[-1:] != [event["event_action"]]:
                said.append(event["event_action"])
        return said
