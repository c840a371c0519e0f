"""Prometheus Alertmanager, API v2: let it group, silence and page. One alert there per alert here, told to every member.

What Alertmanager does, and what follows from it

- An alert there *is* its set of labels. So a resolve carries the labels of its trigger (`Delivery.root`), whatever was edited
  in between, and values, texts and thresholds are annotations.
- It forgets: alerts are in memory only, and one whose `endsAt` has passed is over. So what still fires is sent again every
  `resend` seconds (`refresh`, from the store's rows), each time to stay up for `hold` seconds more. A restart of either side
  loses nothing; an alert whose collector has died stays up for `hold`.
- The members of a cluster share silences and what was notified, not alerts: each is told of everything. One that took it is
  enough; the others catch up with the next refresh, on ends too. A member that failed is left to the refreshes while another
  answers: one that hangs must not make every page wait for it. After a restart nobody knows which ends a member missed: those
  of the last `hold` seconds are told again, for a member that knows them passes over them.
- The same alert twice changes nothing, so an attempt of unknown outcome is simply repeated.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from alerts.facts import brief_facts, number
from alerts.messages import Message, compose
from alerts.model import Action, Delivery, Outcome
from alerts.receivers.http import Http, no_secret
from alerts.receivers.settings import HttpSettings, Kind, Tools, check_address
from alerts.secrets import SecretError, parse_reference
from alerts.text import clean, clean_line, cut_characters, defused

_AT_ONCE: Final = 200
"""Alerts in one request of a refresh; at a few kB each it stays under a megabyte."""
_MAX_ENDS: Final = 1_000
_SITS_OUT: Final = 7
"""Rounds of refreshes that pass over a member that fails on and on, while another answers."""
_MAX_LABEL: Final = 200
_MAX_ANNOTATION: Final = 4_000
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_]")

Interval = Annotated[float, msgspec.Meta(ge=1, le=86_400)]


class AlertmanagerSettings(HttpSettings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_fields: ClassVar[tuple[str, ...]] = ("bearer",)
    place: ClassVar[tuple[str, ...]] = ("urls",)
    urls: Annotated[list[str], msgspec.Meta(min_length=1, max_length=10)]
    """Addresses of all members, such as http://alertmanager:9093, with the path prefix if there is one."""
    bearer: str | None = None
    """Token for `authorization: Bearer`, where a proxy asks for one."""
    run_labels: tuple[str, ...] = ()
    """Labels of the run that become labels of the alert; each distinct value is another alert there."""
    resend: Interval = 60.0
    """Seconds after which what still fires is sent again."""
    hold: Interval = 3_600.0
    """Seconds for which Alertmanager keeps up an alert that is not sent again."""

    def __post_init__(self) -> None:
        for url in self.urls:
            check_address(url, secret_goes_there=self.bearer is not None)
            if urlsplit(url).username is not None:
                raise ValueError("an address with a user or password is a secret: write the token as `bearer: env:NAME`")
        if not self.send_resolved:
            raise ValueError(
                "Alertmanager has to be told the end (remove send_resolved, and set it in Alertmanager's receiver)"
            )
        if self.hold < 3 * self.resend:
            raise ValueError("`hold` has to be at least three times `resend`: one lost request must end no alert")


class Alertmanager:
    """`Outcome.remote` is the alert's name there: its labels, as JSON."""

    scope = "alert"

    def __init__(self, name: str, settings: AlertmanagerSettings, tools: Tools) -> None:
        self.name = name
        self.refresh_seconds = settings.resend
        self.holds_seconds = settings.hold
        self._settings = settings
        self._secrets = tools.secrets
        self._wording = tools.wording
        self._clock = tools.clock
        self._members = [_Member(f"{url.rstrip('/')}/api/v2/alerts") for url in settings.urls]
        self._http = Http(settings, tools)

    def send(self, delivery: Delivery) -> Outcome:
        alert = self._alert(delivery)
        name = _encode(alert["labels"])
        try:
            headers = self._headers()
        except SecretError as error:
            return no_secret(error)
        outcomes: list[Outcome] = []
        told: list[_Member] = []
        for member in sorted(self._members, key=lambda member: member.failing):
            if member.failing and any(outcome.ok for outcome in outcomes):
                break
            outcomes.append(self._post(member, [alert], headers))
            told += [member] if outcomes[-1].ok else []
        for member in self._members:
            member.told(name, alert, missed=member not in told and delivery.action is Action.RESOLVE)
        outcome = best(outcomes, len(self._members))
        return outcome._replace(remote=name) if outcome.ok else outcome

    def refresh(self, held: Sequence[Delivery], ended: Sequence[Delivery] = ()) -> Outcome:
        """Say again what still fires: `held` are the delivered triggers that have no end. To every member; one is enough.

        `ended` are ends of before this receiver was made, which a member may have missed; one that took them passes over it.
        """
        alerts = [self._alert(delivery) for delivery in held]
        fires = {_encode(alert["labels"]) for alert in alerts}
        for over in map(self._alert, ended):
            if (name := _encode(over["labels"])) not in fires:
                for member in self._members:
                    member.told(name, over, missed=True)
        try:
            headers = self._headers()
        except SecretError as error:
            return no_secret(error)
        outcomes: list[Outcome] = []
        for member in sorted(self._members, key=lambda member: member.failing):
            if not (any(outcome.ok for outcome in outcomes) and member.sits_out()):
                outcomes.append(self._refresh(member, alerts, headers))
        return best(outcomes, len(self._members))

    def _refresh(self, member: _Member, alerts: list[dict[str, Any]], headers: Mapping[str, str]) -> Outcome:
        ends = dict(member.ends)
        whole = [*alerts, *ends.values()]
        for first in range(0, len(whole), _AT_ONCE):
            outcome = self._post(member, whole[first : first + _AT_ONCE], headers)
            if not outcome.ok:
                return outcome
        member.ends.clear()
        return Outcome(ok=True, reason="ok")

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        self._http.close()

    def _alert(self, delivery: Delivery) -> dict[str, Any]:
        now = self._clock()
        over = delivery.action is Action.RESOLVE
        message = compose(delivery, self._wording)
        alert: dict[str, Any] = {
            "labels": labels(delivery, self._settings.run_labels),
            "annotations": described(delivery, message),
            "endsAt": _rfc3339(now if over else now + self._settings.hold),
        }
        if not over:
            # By our clock: a trainer that is hours behind would make alerts that are over when they begin.
            alert["startsAt"] = _rfc3339(max(0.0, min(delivery.created_at, now)))
        addresses = dict(reversed(message.links))
        if address := addresses.get("incident") or next(iter(dict(message.links).values()), ""):
            alert["generatorURL"] = address
        return alert

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self._settings.bearer is not None:
            headers["authorization"] = f"Bearer {self._secrets.value(parse_reference(self._settings.bearer))}"
        return headers

    def _post(self, member: _Member, alerts: list[dict[str, Any]], headers: Mapping[str, str]) -> Outcome:
        answer = self._http.post(member.url, msgspec.json.encode(alerts), headers)
        outcome = answer if isinstance(answer, Outcome) else answer.outcome
        member.answered(outcome.ok)
        if not outcome.ok and not isinstance(answer, Outcome):
            return outcome._replace(detail=f"{outcome.detail}: {self._http.quote(answer.body)}")
        return outcome


class _Member:
    """One Alertmanager of a cluster."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._failures = 0
        self._sits_out = 0
        self.ends: dict[str, dict[str, Any]] = {}
        """Ends that it missed, by the alert's name; after a restart all of the last `hold` seconds are taken for missed."""

    @property
    def failing(self) -> bool:
        """Its last request failed."""
        return self._failures > 0

    def answered(self, ok: bool) -> None:
        """What became of a request. One that fails on and on is asked in fewer and fewer rounds: each may cost its timeout."""
        self._failures = 0 if ok else self._failures + 1
        self._sits_out = 0 if ok else min(2 ** (self._failures - 1) - 1, _SITS_OUT)

    def sits_out(self) -> bool:
        """Whether it is passed over in this round of refreshes; counts the round."""
        if self._sits_out == 0:
            return False
        self._sits_out -= 1
        return True

    def told(self, name: str, alert: dict[str, Any], *, missed: bool) -> None:
        """An alert was sent to the cluster; `missed`: this member did not take its end."""
        self.ends.pop(name, None)
        if missed and len(self.ends) < _MAX_ENDS:
            self.ends[name] = alert


def best(outcomes: Sequence[Outcome], members: int) -> Outcome:
    """Of several members: one that took it is enough; else one that may be tried again rather than one that refused."""
    chosen = min(outcomes, key=lambda outcome: (not outcome.ok, not outcome.retry))
    if members == 1:
        return chosen
    took = sum(outcome.ok for outcome in outcomes)
    others = "; ".join(dict.fromkeys(f"{outcome.reason}: {outcome.detail}" for outcome in outcomes if not outcome.ok))
    detail = f"{took} of {members} members took it" + (f" ({others})" if others else "")
    return chosen._replace(detail=detail)


def labels(delivery: Delivery, run_labels: Sequence[str]) -> dict[str, str]:
    """What the alert is called there: the name under which its trigger went out, if it did."""
    if (known := _decode(delivery.root or delivery.remote)) is not None:
        return known
    event = delivery.event
    found: dict[str, str] = {}
    for name in run_labels:
        found[_label_name(name)] = event.run_labels.get(name, "")
    for name, value in event.labels.items():
        found[_label_name(name)] = value
    # Last, so that no label of a run can take the name of one that silences and routes go by.
    found |= {
        "alertname": event.alert,
        "run": event.run,
        "severity": event.severity.value,
        "layer": str(event.layer),
        "rule": event.id,
    }
    return {name: text for name, value in found.items() if (text := _label_value(value))}


def described(delivery: Delivery, message: Message) -> dict[str, str]:
    """What is said about it; may differ from one sending to the next. Empty ones are left out."""
    event = delivery.event
    said = {
        "title": message.title,
        "summary": message.summary or message.title,
        "reason": event.reason.replace("_", " "),
        "value": "" if event.value is None else number(event.value),
        "limit": "" if event.limit is None else number(event.limit),
        "next": "\n".join(message.next),
        "explains": ", ".join(message.explains),
        "incident": clean_line(delivery.incident),
        "step": str(event.step),
        **{label.lower().replace(" ", "_"): text for label, text in brief_facts(delivery) if label != "Layer"},
    }
    # Alertmanager's own templates put this into chats as it is.
    found = {name: defused(text) for name, text in said.items()} | {"runbook": event.runbook}
    found |= {f"{_label_name(label)}_url": address for label, address in message.links}
    return {name: text for name, value in found.items() if (text := _annotation(value))}


def _annotation(text: str) -> str:
    return cut_characters(clean(text).strip(), _MAX_ANNOTATION).text


def _label_name(name: str) -> str:
    """A name of the classic grammar, `[a-zA-Z_][a-zA-Z0-9_]*`, which every Alertmanager takes."""
    plain = _NO_NAME.sub("_", name)[:_MAX_LABEL] or "_"
    return f"_{plain}" if plain[0].isdigit() else plain


def _label_value(text: str) -> str:
    """One line; a long one keeps its beginning and a digest, for two alerts must not become one."""
    plain = defused(clean_line(text))
    if len(plain) <= _MAX_LABEL:
        return plain
    digest = hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()[:12]
    return f"{plain[: _MAX_LABEL - 13]}#{digest}"


def _encode(found: Mapping[str, str]) -> str:
    return msgspec.json.encode(found, order="sorted").decode()


def _decode(text: str) -> dict[str, str] | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:  # the row was another kind's: this receiver had the name of a Slack channel once
        return None


def _rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


KIND = Kind(AlertmanagerSettings, Alertmanager, Alertmanager.scope)
