"""What an incident is, what of it leaves as a delivery, and what became of that. The seams are in `alerts.ports`."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from alerts.brief import Brief
from rules.model import AlertEvent, Severity


class Action(enum.StrEnum):
    """What a receiver is told."""

    TRIGGER = "trigger"
    UPDATE = "update"
    """An incident that was told has changed: acknowledged, one of several alerts resolved, a note."""
    REMIND = "remind"
    """It is still open."""
    RESOLVE = "resolve"


class DeliveryStatus(enum.StrEnum):
    """The life of one delivery row."""

    PENDING = "pending"
    SENDING = "sending"
    """Handed to the receiver; found at start after a crash, it means: the outcome is unknown."""
    SENT = "sent"
    FAILED = "failed"
    """Final: the receiver refused it for good, or the last attempt is over."""
    SKIPPED = "skipped"
    """Not needed any more: a resolve whose trigger was never delivered, a reminder whose end is queued behind it."""


class Told(msgspec.Struct, kw_only=True):
    """An alert within its incident, and who was told of it."""

    alert: str
    id: str
    labels: dict[str, str] = {}
    severity: Severity
    layer: int
    firing: bool = True
    explained_by: str = ""
    receivers: list[str] = []
    """Receivers that were told of the current episode, or whose open page it joined: exactly those are told its end."""
    episode: int = 1
    muted_by: str = ""
    """What keeps it from being told now; such an alert fires, and some of its receivers do not know."""
    muted_until: float | None = None
    """When that ends by itself, in seconds since the epoch."""
    untold: AlertEvent | None = None
    """While it is muted: what is to be told when the mute ends."""
    event: AlertEvent | None = None
    """What was last heard of it while it fired; None in incidents of versions that did not keep it."""
    brief: Brief | None = None
    """What a message says beside `event`; of the present episode."""
    closed_by: str = ""
    """Who closed it by hand while it fired; it is not told again before it has cleared and fires anew."""
    told_at: float | None = None
    """When the first receiver was told of the episode, on the incident's clock (`alerts.escalation.unattended`)."""
    storm: str = ""
    """Id of the storm through which it was told."""
    through: list[str] = []
    """Receivers that were told through it: they hear the end of the storm, and nothing of this alert."""
    routed_as: AlertEvent | None = None
    """Of the alert of a storm: the loudest of the events that it stands for, whose routes it has."""

    @property
    def asks(self) -> AlertEvent | None:
        """The event by which it is routed, muted, reminded of and escalated."""
        return self.routed_as or self.event

    def known_to(self, receiver: str) -> bool:
        """Whether a receiver was told of the episode, by itself or through a storm."""
        return receiver in self.receivers or receiver in self.through


class Group(msgspec.Struct, kw_only=True):
    """Alerts that one receiver is to be told of together."""

    since: float
    """When the first of them began to wait, in seconds since the epoch."""
    wait: float
    """For how many seconds."""
    alerts: list[str] = []
    """Fingerprints."""


class Page(msgspec.Struct, kw_only=True):
    """What one receiver of scope "incident" has open for an incident."""

    fingerprint: str
    """The alert that opened it; with `episode` the name of this page: all its rows carry both."""
    episode: int
    severity: Severity
    """The loudest that was told."""
    told: list[str] = []
    """Fingerprints of the alerts that have a trigger row in this page."""
    alerts: list[str] = []
    """Fingerprints that hold it open; the last one to resolve closes it."""
    opened_at: float | None = None
    """When it was planned, in seconds since the epoch; None in pages of versions that did not keep it."""
    reminded: int = 0
    """How many of the reminders of its route are over."""


class Acknowledgement(msgspec.Struct, kw_only=True, frozen=True):
    """Somebody has an incident in hand."""

    owner: str
    at: float
    """Seconds since the epoch."""
    until: float
    """When it expires."""
    door: str = ""
    """How it was said: "http", "page", "command"; empty when that is not known."""


class Member(msgspec.Struct, kw_only=True, frozen=True):
    """An incident that is told through a storm."""

    run: str
    alerts: dict[str, str]
    """What fires of it and was told through the storm: names by fingerprint."""
    severity: Severity
    """The loudest of them."""
    step: int


class Storm(msgspec.Struct, kw_only=True):
    """What an incident of kind "storm" stands for."""

    members: dict[str, Member] = {}
    """By incident; those that are not over."""
    joined: int = 0
    """How many there were in all."""
    told: tuple[int, int] = (0, 0)
    """Of how many, joined and over, people were told last."""
    told_at: float = 0.0
    """When, in seconds since the epoch."""

    @property
    def over(self) -> int:
        return self.joined - len(self.members)


class Incident(msgspec.Struct, kw_only=True):
    """The alerts of one run from the first that fires until none does; or a storm: many incidents that are told as one."""

    id: str
    """`<run>#<n>`: n counts the run's incidents, so the id is a function of the records."""
    run: str
    number: int
    opened_at: float
    opened_step: int
    closed_at: float | None = None
    alerts: dict[str, Told] = {}
    """By fingerprint."""
    pages: dict[str, Page] = {}
    """By receiver of scope "incident" or "thread"."""
    groups: dict[str, Group] = {}
    """By receiver: what waits a little before it is told."""
    acknowledged: Acknowledgement | None = None
    attended: float = 0.0
    """For how many seconds acknowledgements before this one were in force."""
    told_at: float | None = None
    """When a receiver was first told of it by itself, in seconds since the epoch."""
    kind: str = "run"
    """Or "storm"."""
    storm: Storm | None = None
    """Of kind "storm"."""
    updates: int = 0
    """How often its receivers were told of a change that is no alert's; part of those rows' ids."""


class LineState(enum.StrEnum):
    """How an alert of an incident stands."""

    FIRING = "firing"
    EXPLAINED = "explained"
    RESOLVED = "resolved"
    MUTED = "muted"


class BoardLine(msgspec.Struct, kw_only=True, frozen=True):
    """One alert of an incident, as it was when the row was planned."""

    alert: str
    """Its name; of a storm a run and the names of its alerts."""
    severity: Severity
    layer: int
    state: LineState
    step: int
    value: float | None = None


class Delivery(msgspec.Struct, kw_only=True):
    """One message to one receiver; committed with the input position, sent afterwards."""

    id: str
    """Deterministic: incident, alert fingerprint, episode, action, receiver. A second insert of it is a bug that is refused."""
    receiver: str
    action: Action
    incident: str
    dedup_key: str
    """Stable over trigger, update and resolve of one incident or alert, at most 255 characters."""
    fingerprint: str
    """Of the alert; for scope "incident" of the one that opened the page. `delivered` is asked for it, the incident and
    `event.episode`."""
    event: AlertEvent
    status: DeliveryStatus = DeliveryStatus.PENDING
    attempts: int = 0
    not_before: float = 0.0
    created_at: float = 0.0
    sequence: int = 0
    """Set by the store: order of commit. Rows of one (receiver, dedup_key) are sent in this order."""
    error: str = ""
    """Why the last attempt failed; redacted."""
    ambiguous: bool = False
    """An earlier attempt may have arrived: reconcile before sending again."""
    remote: str = ""
    """What the receiver calls it (a Slack message ts); needed for threads and edits."""
    note: str = ""
    """One line for people: "acknowledged by ada until 04:10 UTC", "reminder: open for 1 h"."""
    board: tuple[BoardLine, ...] = ()
    """The alerts of the incident."""
    brief: Brief | None = None
    """What is to be said beside `event`; None for alerts of no training, and where nobody has looked."""
    root: str = ""
    """Not stored: set by the worker before an attempt. What the receiver calls the message that this row goes on from."""
    begun: Delivery | None = None
    """Not stored, likewise: the row that began it."""


class Outcome(NamedTuple):
    """A receiver's answer to one attempt."""

    ok: bool
    retry: bool = False
    reason: str = ""
    """A short constant-like word for the metric label: "ok", "rate_limited", "server_error", "timeout", "rejected" ..."""
    detail: str = ""
    """For people; free of secrets."""
    retry_after: float | None = None
    ambiguous: bool = False
    """The receiver may have taken it although no answer came."""
    remote: str = ""
    needless: bool = False
    """It was not sent because nobody needs it any more; `detail` says why."""


class Root(NamedTuple):
    """The beginning of a thread."""

    first: Delivery
    """The first row that was sent."""
    remote: str
    """What the receiver calls the message now: of the newest row that was sent."""
