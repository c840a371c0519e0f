"""Incidents by the vectors of vectors/alerting.yaml: who is told again, who hears ends, causes that come and go."""

from __future__ import annotations

from typing import Any

from alerts.incidents import IncidentBook, Reach
from alerts.model import Delivery
from rules.model import Severity
from tests.kit.books import at, explained, resolves, said, warns
from tests.kit.vectors import alerting


def rows_for(of: IncidentBook, step: int, firing: list[int], resolved: list[int]) -> list[Delivery]:
    """Let exactly these fire; those in `resolved` that fire until now end."""
    events = [warns(step, f"A{n}") for n in firing] + [resolves(step, f"A{n}", severity=Severity.WARNING) for n in resolved]
    return list(of.apply(events, 0.0).deliveries)


def test_n01_who_is_told_again() -> None:
    """Without reminders, which are not of this engine's first form: cases that notify only because time passed are left out."""
    compared = 0
    for case in alerting()["N01"]["cases"]:
        last = case["last"] or {"firing": [], "resolved": [], "age_s": 0}
        repeated = last["firing"] == case["firing"] != [] and case["notify"]
        if repeated:
            continue
        of = IncidentBook(lambda _: ["r"], {"r": Reach(send_resolved=case["send_resolved"])})
        keep = at(0, "Keep", severity=Severity.INFO)  # the incident stays open whatever happens
        of.apply([keep, *(warns(0, f"A{n}") for n in [*last["firing"], *last["resolved"]])], 0.0)
        rows_for(of, 1, [], last["resolved"])
        told = rows_for(of, 2, case["firing"], case["resolved"])
        if not case["firing"] and not case["send_resolved"] and case["notify"]:
            # Upstream writes the full resolution into its log here and sends nothing; so do we, in the incident.
            assert told == []
            assert rows_for(of, 3, case["resolved"], []), "and the next firing is new"
        else:
            assert bool(told) == case["notify"], case
        compared += 1
    assert compared == 9


def test_n05_ends_go_only_to_those_who_hear_them() -> None:
    for case in alerting()["N05"]["cases"]:
        if "batch" not in case:
            continue
        of = IncidentBook(lambda _: ["r"], {"r": Reach(send_resolved=case["send_resolved"])})
        ended = [n for n, state in enumerate(case["batch"]) if state == "resolved"]
        begun = [n for n, state in enumerate(case["batch"]) if state == "firing"]
        rows_for(of, 0, ended, [])
        words = {"trigger": "firing", "resolve": "resolved"}
        assert sorted(words[row.action] for row in rows_for(of, 1, begun, ended)) == sorted(case["sent"])


def test_i03_a_cause_comes_and_goes() -> None:
    """The first timeline: while JobDown fires, InstanceDown of the same zone is kept back; then it is not told anew."""
    timeline = alerting()["I03"]["timeline"]
    assert [sorted(moment.keys() - {"t_s"}) for moment in timeline] == [["fire"], ["fire"], ["resolve"]]
    of = IncidentBook(lambda _: ["r"], {"r": Reach()})
    zones: list[dict[str, Any]] = [{"labels": {"zone": "aa"}}, {"labels": {"zone": "ab"}}]
    first = of.apply([warns(1, "InstanceDown", **zone) for zone in zones], 0.0)
    assert said(first) == [("r", "trigger", "InstanceDown")] * 2
    cause = of.apply([at(2, "JobDown"), explained(2, "InstanceDown", by="JobDown", **zones[0])], 0.0)
    assert said(cause) == [("r", "trigger", "JobDown")]
    after = of.apply([resolves(3, "JobDown"), warns(3, "InstanceDown", **zones[0])], 0.0)
    assert said(after) == [("r", "resolve", "JobDown")]


def test_i03_no_end_of_what_was_never_told() -> None:
    """Its second case, where upstream sends both as resolved: only the cause was told, only the cause is ended."""
    of = IncidentBook(lambda _: ["r"], {"r": Reach()})
    of.apply([at(1, "JobDown"), explained(1, "InstanceDown", by="JobDown")], 0.0)
    assert said(of.apply([resolves(2, "JobDown"), resolves(2, "InstanceDown")], 0.0)) == [("r", "resolve", "JobDown")]
