"""What people say of incidents while the collector runs: somebody has it in hand, or it is over. See `service.asking`."""

from __future__ import annotations

from collections.abc import Callable

from alerts.model import Incident
from service.asking import PATIENCE_SECONDS, NotThere, Post, ask
from service.consume import Processed
from service.pipeline import Pipeline
from service.store.store import Store


class IncidentDesk:
    """Safe to call from several threads."""

    def __init__(
        self,
        pipeline: Pipeline,
        store: Store,
        post: Post,
        clock: Callable[[], float],
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self._pipeline = pipeline
        self._store = store
        self._post = post
        self.clock = clock
        self._patience = patience

    def acknowledge(self, incident: str, owner: str, until: float, door: str) -> Incident:
        """`owner` has it in hand until then (seconds since the epoch, ahead of now). Raises NotThere, Busy, StoreError."""
        return self._say(incident, lambda: self._pipeline.acknowledge(incident, owner, until, self.clock(), door=door))

    def close(self, incident: str, owner: str) -> Incident:
        """`owner` says that it is over. Raises NotThere, Busy, StoreError."""
        return self._say(incident, lambda: self._pipeline.close_by_hand(incident, owner, self.clock()))

    def _say(self, incident: str, say: Callable[[], Processed]) -> Incident:
        def work() -> tuple[Incident, Processed]:
            if not self._pipeline.is_open(incident):
                raise NotThere(self._why(incident))
            processed = say()
            found = self._store.incident(incident)
            assert found is not None, "what was committed just now is there"
            return found, processed

        return ask(self._post, work, patience=self._patience)

    def _why(self, incident: str) -> str:
        found = self._store.incident(incident)
        if found is None:
            return f"there is no incident {incident!r}"
        if found.closed_at is not None:
            return f"incident {incident!r} is over"
        return f"incident {incident!r} is not in the hands of this collector (if it has just started: try again in a moment)"
