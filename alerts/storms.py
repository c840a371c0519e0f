"""Which incidents are told through a storm, what each means for it, and when it is over. Part of the planner
(`alerts.incidents`, rule 14); what a storm's incident looks like is in `alerts.storm`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from alerts import notes, storm
from alerts.draft import Draft
from alerts.due import Due
from alerts.model import Incident
from alerts.open_incidents import OpenIncidents
from alerts.plan import Kept
from alerts.storm import Gate
from alerts.timing import StormLimit

_UPDATE_SECONDS: Final = 60.0
"""Between two words on how a storm goes on, once storms are switched off."""

MakeDraft = Callable[[Incident], Draft]


class Storms:
    """Of one book. `limit` is the configuration's at each call."""

    def __init__(self, own: str, opened: OpenIncidents) -> None:
        self._gate = Gate(own)
        self._opened = opened
        self.run = self._gate.run
        """The run of their incidents; empty when there are none."""

    def restore(self, incidents: Iterable[Incident], kept: bytes | None) -> None:
        """Go on from what is stored of `run`: its incidents and the newest `kept`."""
        self._opened.forget(self.run)
        self._opened.restore(incidents)
        self._gate.load(kept)

    def kept(self) -> Kept | None:
        """The state, if it has changed since it was last asked for."""
        value = self._gate.dump()
        return None if value is None else Kept(self.run, value)

    def joins(self, incident: Incident, through: str, limit: StormLimit | None, now: float) -> str:
        """The id of the storm through which an incident is to be told, or nothing: the one `through` which it was, if that is
        open, else the open one, or the next, if there is a rush."""
        found = self._opened.of(self.run)
        if through and found is not None and found.id == through:
            return through
        if incident.told_at is not None or not self._gate.concerns(incident):
            return ""
        return self._open(now).id if self._gate.is_full(limit, now) else ""

    def follow(self, draft: Draft, make: MakeDraft, limit: StormLimit | None, now: float) -> list[Draft]:
        """What an incident that was changed means for the storm; counts it, if it is told for the first time."""
        member = draft.incident
        if draft.first_told and self._gate.concerns(member):
            self._gate.count(limit, now)
        if not draft.joined and not draft.left:
            return []
        of = make(self._open(now))
        assert of.incident.storm is not None, "the run of storms has no other incidents"
        if draft.joined:
            if member.id not in of.incident.storm.members:
                self._gate.count(limit, now)
            every = list(dict.fromkeys(print_ for prints in draft.joined.values() for print_ in prints))
            of.tell_storm(storm.join(of.incident, member, every, limit, now), list(draft.joined))
        left = [print_ for id_, print_ in draft.left if id_ == of.incident.id]
        if not storm.leave(of.incident, member.id, left) and not draft.joined:
            return []
        self._opened.put(of.incident)
        return [of]

    def go_on(self, draft: Due, limit: StormLimit | None, now: float) -> bool:
        """Of a storm: tell how it goes on, or that it is over. Whether anything is different now."""
        of = draft.incident.storm
        if of is None:
            return False
        if not of.members and not self._gate.is_full(limit, now):
            draft.end(notes.all_over(of.joined))
            return True
        return draft.recount(_UPDATE_SECONDS if limit is None else limit.within)

    def strangers(self) -> list[str]:
        """Ids of members of the open storm that are not open here: of runs that another collector has, or that are not
        restored yet. Nobody but the store knows when they are over."""
        found = self._opened.of(self.run)
        if found is None or found.storm is None:
            return []
        here = {incident.id for incident in self._opened}
        return [id_ for id_ in found.storm.members if id_ not in here]

    def over_elsewhere(self, incidents: Collection[str], make: MakeDraft) -> list[Draft]:
        """These strangers are over."""
        found = self._opened.of(self.run)
        if found is None:
            return []
        draft = make(found)
        if not any([storm.leave(draft.incident, id_) for id_ in incidents]):
            return []
        self._opened.put(draft.incident)
        return [draft]

    def _open(self, now: float) -> Incident:
        """The open storm, or one that nobody has joined."""
        return self._opened.of(self.run) or storm.begun(self.run, self._opened.next_number(self.run), now)
