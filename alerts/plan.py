"""What the incident book gives out: to be committed in one transaction with what caused it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from alerts.board import board
from alerts.identity import fingerprint, incident_key
from alerts.model import Delivery, Incident


class Kept(NamedTuple):
    """State of the book that belongs to no incident."""

    run: str
    """The run of the collector's own under which it is kept."""
    value: bytes


class Plan(NamedTuple):
    """What a batch of events changes."""

    incidents: Sequence[Incident] = ()
    """New or changed, as they are now. They are copies of the book's: later plans do not change them."""
    deliveries: Sequence[Delivery] = ()
    """New rows, in the order in which they are to leave."""
    kept: Kept | None = None
    """What has changed of the book's own state, if anything has."""

    def followed_by(self, later: Plan) -> Plan:
        """Both as one; of an incident in both the later copy counts."""
        incidents = {incident.id: incident for incident in (*self.incidents, *later.incidents)}
        rows = [*self.deliveries, *later.deliveries]
        return Plan(list(incidents.values()), rows, self.kept if later.kept is None else later.kept)

    @property
    def receivers(self) -> set[str]:
        """Whose workers to wake after the commit."""
        return {delivery.receiver for delivery in self.deliveries}


def completed(row: Delivery, incident: Incident) -> Delivery:
    """The row with what is known at the end of the moment: its alert's brief, what that explains, on pages the board."""
    name = row.event.alert
    told = incident.alerts.get(fingerprint(row.event))
    row.brief = None if told is None else told.brief
    explained = sorted({told.alert for told in incident.alerts.values() if told.explained_by == name})
    if explained:
        row.event = replace(row.event, explains=tuple(explained))
    if row.dedup_key == incident_key(incident.id):
        row.board = board(incident)
    return row
