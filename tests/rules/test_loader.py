"""Rule files: what loads, and every kind of fault with its place, all at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.bundle import OnGap, OnNonFinite
from rules.config_errors import ConfigErrors
from rules.loader import load_bundle, load_text, shipped_packs
from rules.model import Severity
from rules.timing import Domain, Span
from tests.kit.rule_faults import load_faults

GOOD = """\
group: probability-consistency
layer: 1                                  # a comment
question: Is the gradient what I think it is?
vars:
  gap_stop: {value: 0.01, unit: nats, doc: "mean |dlogp| above which training stops", range: [0.002, 0.5]}
rules:
  - record: logprob_gap
    expr: mean(rollout_logprob_abs_diff_mean[3])
  - alert: LogprobGapStop
    id: logprob-gap-stop
    expr: logprob_gap > max($gap_stop, 3 * recorded(rollout_logprob_abs_diff_mean))
    for: 2 records
    leave: logprob_gap < 0.8 * $gap_stop  # optional
    keep: 3 records                       # optional
    severity: stop
    summary: "Engines disagree: {{ value | sig(2) }} nats (stop line {{ vars.gap_stop }})"
    next: ["Do not tune.", "Check weight sync."]
    runbook: logprob-gap
    requires_exact: [rollout_logprob_abs_diff_mean]
    warmup: 5 records
    on_gap: reset
"""
KNOWN = {"rollout_logprob_abs_diff_mean", "grad_norm", "reward_mean"}


def faults(text: str, known: set[str] | None = None) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load_text(text, "f.yaml", known)
    return str(caught.value)


def test_a_good_file() -> None:
    bundle = load_text(GOOD, known_metrics=KNOWN)
    rule = bundle.alert("LogprobGapStop")
    assert bundle.alert("logprob-gap-stop") is rule
    assert rule.severity is Severity.STOP
    assert rule.hold == Span(Domain.RECORDS, 2)
    assert rule.keep == Span(Domain.RECORDS, 3)
    assert rule.warmup == 5
    assert rule.layer == 1
    assert rule.on_gap is OnGap.RESET
    assert rule.on_non_finite is OnNonFinite.BREACH
    assert rule.marks["for"].line == 12
    assert bundle.depth == 3
    assert bundle.record_order == ("logprob_gap",)
    group = bundle.group("probability-consistency")
    assert group.values == {"gap_stop": 0.01}
    assert group.vars["gap_stop"].unit == "nats"


def with_rule(lines: str) -> str:
    return "group: g\nlayer: 1\nquestion: q\nvars:\n  a: {value: 1, unit: nats, doc: d}\nrules:\n" + lines


def alert(expr: str = "grad_norm > 1", **fields: str) -> str:
    """One alert in lines 7..; a field named for_ is `for`."""
    given = {"alert": "Name", "id": "name", "expr": expr, "severity": "warning", "summary": "s"}
    given |= {key.rstrip("_"): text for key, text in fields.items()}
    lines = [f"    {key}: {text}" for key, text in given.items() if text]
    return "  - " + lines[0].lstrip() + "\n" + "\n".join(lines[1:]) + "\n"


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        # the file
        ("[1]", "1:1", "a rule file is a mapping"),
        (GOOD.replace("layer: 1 ", "layer: 7 "), "2:8", "at most 6"),
        (GOOD.replace("layer: 1 ", "layer: one "), "2:8", "expected a whole number"),
        (GOOD.replace("layer:", "lyer:"), "2:1", "unknown key 'lyer' (did you mean 'layer'?)"),
        (GOOD.replace("group: probability-consistency", "group: Probability"), "1:8", "kebab-case"),
        (GOOD.replace("question: Is the gradient what I think it is?\n", ""), "1:1", "key 'question' is missing"),
        (with_rule("").replace("rules:\n", "rules: []\n"), "6:8", "at least 1 entries"),
        # variables
        (GOOD.replace("unit: nats, ", ""), "5:13", "key 'unit' is missing"),
        (GOOD.replace("unit: nats", "unit: 1"), "5:33", 'write "1" in quotes'),
        (GOOD.replace("value: 0.01", "value: 1e-2x"), "5:21", "expected a number"),
        (GOOD.replace("value: 0.01", "value: .inf"), "5:21", "not finite"),
        (GOOD.replace("value: 0.01", "value: 0.9"), "5:21", "outside 0.002..0.5"),
        (GOOD.replace("[0.002, 0.5]", "[0.5, 0.002]"), "5:21", "ends are swapped"),
        (GOOD.replace("range: [0.002, 0.5]", "rnge: [1, 2]"), "5:87", "unknown key 'rnge' (did you mean 'range'?)"),
        (
            GOOD.replace("gap_stop: {", "GapStop: {").replace("$gap_stop", "$GapStop").replace("vars.gap_stop", "value"),
            "5:3",
            "snake_case",
        ),
        # rules
        (with_rule("  - just text\n"), "7:5", "a rule is a mapping"),
        (with_rule("  - expr: a\n"), "7:5", "a rule begins with its kind"),
        (with_rule(alert(alert="name")), "7:12", "CamelCase"),
        (with_rule(alert(id="Name")), "8:9", "kebab-case"),
        (with_rule(alert(severity="critical")), "10:15", "none of info, warning, page, stop"),
        (with_rule(alert(severity="")), "7:5", "key 'severity' is missing"),
        (with_rule(alert(summary="")), "7:5", "key 'summary' is missing"),
        (with_rule(alert(sumary="x")), "12:5", "unknown key 'sumary' (did you mean 'summary'?)"),
        (with_rule(alert(for_="2 epochs")), "12:10", "write 3 records"),
        (with_rule(alert(for_="3")), "12:10", "'3' is no time span (write 3 records, 3 steps, 10m or 3 of 5 records)"),
        (with_rule(alert(for_="1:30")), "12:10", "duration with its unit"),
        (with_rule(alert(for_="5 of 3 records")), "12:10", "m <= n"),
        (with_rule(alert(keep="2 of 3 records")), "12:11", "no time span"),
        (with_rule(alert(keep="3")), "12:11", "'3' is no time span (write 3 records, 3 steps, 10m)"),
        (with_rule(alert(keep="0.5")), "12:11", "'0.5' is no time span"),
        (with_rule(alert(warmup="10m")), "12:13", "a warm-up counts records"),
        (with_rule(alert(on_gap="ignore")), "12:13", "none of hold, reset, count"),
        (with_rule(alert(on_non_finite="page")), "12:20", "none of breach, hold"),
        (with_rule(alert(independent="yes")), "12:18", "true or false"),
        (with_rule(alert(next="look")), "12:11", "expected a list"),
        (with_rule(alert(runbook="Log Prob")), "12:14", "kebab-case"),
        (with_rule(alert(summary="'{{ valu }}'")), "11:14", "'valu' is undefined"),
        (with_rule(alert(summary="'{{ value * 2 }}'")), "11:14", "fails with value and limit missing"),
        (with_rule(alert() + alert()), "12:12", "alert 'Name' is there twice"),
        (with_rule(alert() + alert()), "13:9", "id 'name' is there twice"),
        (with_rule("  - {record: r, expr: a + 1}\n  - {record: r, expr: a + 2}\n"), "8:14", "record 'r' is there twice"),
        (with_rule("  - {record: Rate, expr: a + 1}\n"), "7:14", "snake_case"),
        (with_rule("  - {record: silence, expr: a + 1}\n"), "7:14", "a meaning in the language"),
        (with_rule("  - {record: grad_norm, expr: reward_mean + 1}\n"), "7:14", "is a metric"),
        (with_rule("  - {record: r, expr: 1 + 1}\n"), "7:23", "at least one metric"),
        # expressions
        (with_rule(alert("grad_norm >")), "9:22", "ends too early"),
        (
            with_rule(alert(">-\n      grad_norm > 1 # lost\n      and reward_mean > 1")),
            "9:11",
            "takes the lines below it along",
        ),
        (with_rule(alert(">-\n      grad_norm > 1\n      and grad_nrm > 2")), "11:11", "unknown metric grad_nrm"),
        (with_rule(alert("|\n      grad_norm > 1  # why\n      and grad_nrm > 2")), "11:11", "unknown metric grad_nrm"),
        (with_rule(alert("grad_norm > 1\n      and grad_nrm > 2")), "10:11", "unknown metric grad_nrm"),
        (with_rule(alert("grad_norm")), "9:11", "expected a condition, got a number"),
        (with_rule(alert("grad_norm > 1 > 0")), "9:25", "write `a < b and b < c`"),
        (with_rule(alert("mean(grad_norm) > 1")), "9:16", "mean takes a window"),
        (with_rule(alert("grad_norm[3] > 1")), "9:11", "a window is no number"),
        (with_rule(alert("men(grad_norm[3]) > 1")), "9:11", "unknown function men (did you mean"),
        (with_rule(alert("quantile(2, grad_norm[3]) > 1")), "9:20", "outside 0..1"),
        (with_rule(alert("quantile(0.5) > 1")), "9:11", "write quantile(0.9, x[20])"),
        (with_rule(alert("ewma(grad_norm[3], 0) > 1")), "9:30", "above 0 records"),
        (with_rule(alert("ewma(grad_norm[3], grad_norm) > 1")), "9:30", "known at load"),
        (with_rule(alert("zscore(grad_norm[2]) > 1")), "9:18", "at least 3 records"),
        (with_rule(alert("grad_norm > $b")), "9:23", "unknown variable $b"),
        (with_rule(alert("grad_norm / 0 > 1")), "9:23", "division by zero"),
        (with_rule(alert("log(0) > grad_norm")), "9:11", "not a finite number"),
        (with_rule(alert("clamp(grad_norm, 2, 1) > 1")), "9:11", "low above high"),
        (with_rule(alert("grad_nrm > 1")), "9:11", "unknown metric grad_nrm (did you mean 'grad_norm'?)"),
        (with_rule(alert("loss > 1")), "9:11", "a key of the framework goes into backquotes"),
        (with_rule(alert("firing(Nam) and grad_norm > 1")), "9:18", "unknown alert Nam (did you mean 'Name'?)"),
        (with_rule(alert("firing(Name)")), "9:11", "alerts that need each other: Name -> Name"),
        (with_rule(alert("firing(3)")), "9:18", "takes the name of an alert"),
        (with_rule(alert("label(model) > 3")), "9:11", "text has no order"),
        (with_rule(alert("label(model) == 3")), "9:27", "expected text, got a number"),
        (with_rule(alert("label(model) + 1 > 3")), "9:11", "is text"),
        (with_rule(alert("'grad_norm > \"a\"'")), "9:12", "text has no order"),
        (with_rule(alert("absent(grad_norm)")), "9:18", "absent takes a window"),
        (with_rule(alert("baseline(3) > 1")), "9:20", "takes the name of a metric"),
        (with_rule(alert("(grad_norm > 1) + 1 > 2")), "9:12", "a condition where a number is expected"),
        (with_rule(alert("is_nan(grad_norm) > 1")), "9:11", "is a condition, not a number"),
        (with_rule(alert(leave="grad_norm")), "12:12", "expected a condition"),
        (with_rule(alert(requires_exact="[grad_nrm]")), "12:22", "unknown metric grad_nrm"),
        (with_rule("  - {record: r, expr: x_y + 1}\n"), "7:23", "unknown metric x_y"),
        (with_rule("  - {record: r, expr: 'grad_norm > 1'}\n"), "7:24", "a condition where a number is expected"),
    ],
)
def test_every_fault_has_its_place_and_says_what_to_write(text: str, place: str, says: str) -> None:
    found = faults(text, KNOWN)
    assert any(line.startswith(f"f.yaml:{place}:") and says in line for line in found.splitlines()), found


def test_all_faults_of_a_file_at_once() -> None:
    bad = GOOD.replace("layer: 1 ", "layer: 9 ").replace("gap_stop, 3", "gap_stp, 3").replace("2 records", "2 rows")
    assert [line.split(":")[1] for line in faults(bad).splitlines()] == ["2", "11", "12"]


def test_a_rule_with_wrong_keys_is_judged_to_its_end_in_the_same_round() -> None:
    text = """\
group: two
layer: 4
question: What is wrong here?
vars:
  a: {value: 0.5, unit: "1", doc: d}
rules:
  - alert: bad_name
    id: Bad
    expr: mean(grad_nrom[5]) < $b
    colour: red
    severity: loud
    summary: "x {{ valu }}"
    runbook: r
  - record: 7
    expr: mean(grad_norm[5]
  - alert: NoSeverity
    id: no-severity
    expr: grad_norm > $a
    leave: grad_nrom < 1
    next: look
"""
    with pytest.raises(ConfigErrors) as caught:
        load_text(text, known_metrics=KNOWN)
    found = [(error.line, error.message.split(" (")[0].split(":")[0][:32]) for error in caught.value.errors]
    assert [line for line, _ in found] == sorted(line for line, _ in found)
    assert {line for line, _ in found} == {7, 8, 9, 10, 11, 12, 14, 15, 16, 19, 20}, found
    assert len([1 for line, _ in found if line == 9]) == 2, "the unknown metric and the unknown variable"


def test_cycles_are_shown_with_their_path() -> None:
    text = with_rule(
        alert("firing(B)", alert="A", id="a") + alert("firing(C)", alert="B", id="b") + alert("firing(A)", alert="C", id="c")
    )
    assert "alerts that need each other: A -> B -> C -> A" in faults(text)
    records = with_rule("  - {record: r, expr: s + 1}\n  - {record: s, expr: 'mean(r[3])'}\n")
    assert "record rules that need each other: r -> s -> r" in faults(records)


def test_comments_in_expressions() -> None:
    literal = load_text(with_rule(alert("|\n      x > 1 # the first\n      and `y # z` > 2 # the second")))
    assert literal.alert("Name").expr.count("#") == 3
    folded = load_text(with_rule(alert(">-\n      x > 1\n      and `y # z` > 2")))
    assert literal.alert("Name").node == folded.alert("Name").node


def test_a_chain_has_an_end() -> None:
    rules = "".join(f"  - {{record: r{i}, expr: r{i + 1} + 1}}\n" for i in range(300))
    assert "more than 100 record rules in a row" in faults(with_rule(rules))


def test_order_follows_dependencies() -> None:
    text = with_rule(alert("firing(B)", alert="A", id="a") + alert("x > 1", alert="B", id="b"))
    text += "  - {record: r, expr: s + 1}\n  - {record: s, expr: x + 1}\n"
    bundle = load_text(text)
    assert bundle.alert_order == ("b", "a")
    assert bundle.record_order == ("s", "r")


def test_depth_is_that_of_the_deepest_window() -> None:
    assert load_text(with_rule(alert("mean(x[20 offset 5]) > max(x[30 steps])"))).depth == 30
    assert load_text(with_rule(alert("absent(x[40])"))).depth == 40
    assert load_text(with_rule(alert("x > 1", leave="mean(x[5..70]) < 1"))).depth == 70


def test_directories_are_read_in_the_order_of_names(tmp_path: Path) -> None:
    for name, group in (("b.yaml", "second"), ("a.yaml", "first")):
        text = with_rule(alert(alert=group.title(), id=group)).replace("group: g", f"group: {group}")
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "note.txt").write_text("no rule file", encoding="utf-8")
    bundle = load_bundle([tmp_path])
    assert [group.name for group in bundle.groups] == ["first", "second"]
    assert bundle.sources == (tmp_path,)


def test_a_group_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(with_rule(alert()), encoding="utf-8")
    (tmp_path / "b.yaml").write_text(with_rule(alert(alert="Other", id="other")), encoding="utf-8")
    (fault,) = load_faults([tmp_path])
    assert fault.message == f"group 'g' is in {tmp_path / 'a.yaml'} too (one group is one file)"


def test_faults_of_several_files_come_together(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("group: [", encoding="utf-8")
    (tmp_path / "b.yaml").write_text(with_rule(alert("x >")), encoding="utf-8")
    found = load_faults([tmp_path, tmp_path / "none.yaml", tmp_path / "empty"])
    assert [Path(error.file).name for error in found] == ["a.yaml", "none.yaml", "empty", "b.yaml"]


def test_the_shipped_packs_load() -> None:
    assert load_faults([shipped_packs()]) == []


@given(st.data())
@settings(max_examples=100)
def test_a_damaged_file_loads_or_says_why(data: st.DataObject) -> None:
    """A piece of a good file is removed or replaced: never anything but a bundle or ConfigErrors."""
    start = data.draw(st.integers(0, len(GOOD) - 1))
    end = data.draw(st.integers(start, min(len(GOOD), start + 30)))
    piece = data.draw(st.text(alphabet="ab1 :-[]{}\n'\"#$()>.,\t&*", max_size=8))
    try:
        load_text(GOOD[:start] + piece + GOOD[end:], known_metrics=KNOWN)
    except ConfigErrors as errors:
        assert errors.errors
