"""The open incident of each run, and how many the run has had. Part of the planner (`alerts.incidents`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from alerts.model import Incident


class OpenIncidents:
    """In memory; what is in it is replaced, never changed in place."""

    def __init__(self) -> None:
        self._open: dict[str, Incident] = {}
        self._numbers: dict[str, int] = {}

    def __iter__(self) -> Iterator[Incident]:
        return iter(list(self._open.values()))

    def of(self, run: str) -> Incident | None:
        """The open incident of a run."""
        return self._open.get(run)

    def by_id(self, incident: str) -> Incident | None:
        """The open incident with this id."""
        return next((found for found in self._open.values() if found.id == incident), None)

    def next_number(self, run: str) -> int:
        """The number of the run's next incident."""
        return self._numbers.get(run, 0) + 1

    def put(self, incident: Incident) -> None:
        """This is now the run's newest incident, open or over."""
        self._numbers[incident.run] = incident.number
        if incident.closed_at is None:
            self._open[incident.run] = incident
        elif (known := self._open.get(incident.run)) is not None and known.id == incident.id:
            del self._open[incident.run]

    def restore(self, incidents: Iterable[Incident]) -> list[str]:
        """Stored incidents in any order, older ones of a run among them; the runs of which one is open."""
        found = []
        for incident in incidents:
            newest = max(self._numbers.get(incident.run, 0), incident.number)
            self.put(incident)
            self._numbers[incident.run] = newest
            if incident.closed_at is None:
                found.append(incident.run)
        return found

    def forget(self, run: str) -> None:
        """The run is another collector's now."""
        self._open.pop(run, None)
        self._numbers.pop(run, None)
