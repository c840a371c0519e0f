"""What one batch has caused so far, on its way into one transaction."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from alerts.incidents import Plan
from alerts.model import Delivery, Incident
from alerts.storm import STORM
from collector.model import RunStatus
from rules.model import AlertEvent
from service import stop_requests
from service.live import Live
from service.stop_requests import Stop
from service.store.model import Advance, Commit, EvidenceRow, RunRow, StateRow, StoredRecord


class Pending:
    """Collects effects in the order of the records; `commit` gives them as they are then."""

    def __init__(self, positions: Mapping[str, int | None]) -> None:
        self._positions = positions
        """What the store holds, by partition."""
        self.ends: dict[str, int] = {}
        """Where reading goes on, by partition."""
        self.records: list[StoredRecord] = []
        self.events: list[AlertEvent] = []
        self.touched: dict[str, Live] = {}
        self.renewed: dict[str, Live] = {}
        """Runs that are judged by other rules than before: what is shown of those is made anew, whether or not there is
        anything to write."""
        self._incidents: dict[str, Incident] = {}
        self.deliveries: list[Delivery] = []
        self.own_states: list[StateRow] = []
        self.stops: dict[str, Stop] = {}
        """Requests to stop that are new or changed, by run."""
        self.evidence: dict[str, EvidenceRow] = {}
        """Evidence that is new or changed, by incident."""
        self.saving: set[str] = set()
        """Runs to checkpoint whatever their age."""

    def read(self, partition: str, next_offset: int) -> None:
        """Everything before this offset is dealt with."""
        self.ends[partition] = next_offset

    def judged(self, partition: str) -> None:
        """Something without a record (silence) happens in a partition: it must still be ours, where it stands."""
        if partition not in self.ends and (at := self._positions.get(partition)) is not None:
            self.ends[partition] = at

    def save(self, live: Live) -> None:
        """Write a checkpoint of a run that brought no record."""
        run = live.run.run
        self.saving.add(run)
        self.touched[run] = live
        self.judged(live.partition)

    def keep_own(self, row: StateRow) -> None:
        """Write a state of the collector's own, instead of an earlier one of this transaction."""
        self.own_states = [kept for kept in self.own_states if (kept.run, kept.rule_id) != (row.run, row.rule_id)] + [row]

    def planned(self, events: Sequence[AlertEvent], plan: Plan) -> None:
        """Events and what the incident book made of them."""
        self.events += events
        self.deliveries += plan.deliveries
        for incident in plan.incidents:
            self._incidents[incident.id] = incident
        if plan.kept is not None:
            self.keep_own(StateRow(plan.kept.run, STORM, "", plan.kept.value))

    def incidents(self, run: str) -> list[Incident]:
        """Those of a run that are new or changed, as they are by now."""
        return [incident for incident in self._incidents.values() if incident.run == run]

    @property
    def receivers(self) -> set[str]:
        return {delivery.receiver for delivery in self.deliveries}

    def __bool__(self) -> bool:
        return bool(self.ends or self.touched or self.events or self.own_states or self._incidents or self.deliveries)

    def commit(self, now: float, checkpoint_rows: int) -> tuple[Commit, list[Live]]:
        """The transaction, and the runs whose checkpoint is in it: after so many rows of their log, and at their end."""
        due = [live for run, live in self.touched.items() if run in self.saving or _is_due(live, checkpoint_rows)]
        saving = {live.run.run for live in due}
        states = [
            StateRow(run, key.rule_id, key.labels_text, live.states.dump(key) if key in live.states.states else None)
            for run, live in self.touched.items()
            # Of a firing alert also the last value and reason: the message that ends it says them, after a restart as well.
            for key in {**dict.fromkeys(live.states.dirty), **live.states.firing}
        ]
        commit = Commit(
            advances=[Advance(name, self._positions.get(name), end) for name, end in self.ends.items()],
            committed_at=now,
            records=self.records,
            runs=[run_row(live, checkpoint=run in saving) for run, live in self.touched.items()],
            states=states + self.own_states + [_stop_row(run, stop) for run, stop in self.stops.items()],
            events=self.events,
            incidents=list(self._incidents.values()),
            deliveries=self.deliveries,
            evidence=list(self.evidence.values()),
        )
        return commit, due


def _is_due(live: Live, checkpoint_rows: int) -> bool:
    """Whether a run's log has passed the next multiple of `checkpoint_rows`, counted from a place of the run's own: runs that
    began together are not all saved in the same commit. At its end a run is always saved."""
    if live.sequence == live.saved:
        return False
    place = zlib.crc32(live.run.run.encode()) % checkpoint_rows
    passed = (live.sequence + place) // checkpoint_rows > (live.saved + place) // checkpoint_rows
    return passed or live.run.status is not RunStatus.RUNNING


def _stop_row(run: str, stop: Stop) -> StateRow:
    return StateRow(run, stop_requests.STATE, "", stop_requests.encode(stop))


def run_row(live: Live, *, checkpoint: bool) -> RunRow:
    """A run's row as it is now."""
    run = live.run
    return RunRow(
        run=run.run,
        partition=live.partition,
        status=run.status,
        attempt=run.attempt,
        step=run.step,
        record=run.record,
        last_arrival=run.last_arrival,
        labels=run.labels,
        sequence=live.sequence,
        checkpoint=run.dump() if checkpoint else None,
    )
