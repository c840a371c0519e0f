"""Layers of a bundle: what a later file may change, what it may not, and who said what is in force."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules.bundle import Bundle
from rules.config_errors import ConfigErrors, Mark
from rules.layering import Layer, Leaf, LeafPath, conflicts, merge
from rules.loader import load_bundle, load_text
from rules.model import Severity
from rules.timing import NOT_AT_ALL, Domain, Span
from rules.yaml_tree import Scalar
from tests.kit.rule_faults import load_faults

BASE = """\
group: g
layer: 1
question: q
vars:
  limit: {value: 1, unit: nats, doc: d, range: [0.5, 3]}
rules:
  - record: level
    expr: mean(x[3])
  - alert: Gap
    id: gap
    expr: level > $limit
    for: 2 records
    keep: 3 records
    severity: stop
    summary: "s"
    next: [one, two]
  - alert: Other
    id: other
    expr: x > 5
    severity: warning
    summary: "s"
"""


def layers(tmp_path: Path, *texts: str) -> list[Path]:
    """One directory per layer."""
    made = []
    for number, text in enumerate(texts):
        folder = tmp_path / f"layer{number}"
        folder.mkdir()
        (folder / "g.yaml").write_text(text, encoding="utf-8")
        made.append(folder)
    return made


def loaded(tmp_path: Path, *texts: str) -> Bundle:
    return load_bundle(layers(tmp_path, *texts))


def faults(tmp_path: Path, *texts: str) -> list[str]:
    """`layer1/g.yaml:3:5: message` of each fault."""
    return [str(error).removeprefix(f"{tmp_path}/") for error in load_faults(layers(tmp_path, *texts))]


# ---- what a later layer changes -----------------------------------------------------------------------------------------


def test_a_later_layer_changes_the_fields_that_it_gives_and_no_other(tmp_path: Path) -> None:
    team = "group: g\nrules:\n  - id: gap\n    severity: page\n    next: [three]\n"
    bundle = loaded(tmp_path, BASE, team)
    base = load_text(BASE).alert("Gap")
    rule = bundle.alert("Gap")
    assert (rule.severity, rule.next) == (Severity.PAGE, ("three",))
    assert (rule.expr, rule.hold, rule.keep, rule.summary) == (base.expr, base.hold, base.keep, base.summary)
    assert [each.id for each in bundle.alerts] == ["gap", "other"], "the place in the bundle stays"
    assert len(bundle.groups) == 1


def test_variables_merge_by_name_and_the_range_of_the_first_layer_holds(tmp_path: Path) -> None:
    assert loaded(tmp_path, BASE, "group: g\nvars:\n  limit: {value: 2}\n").group("g").values == {"limit": 2.0}
    again = tmp_path / "again"
    again.mkdir()
    (found,) = faults(again, BASE, "group: g\nvars:\n  limit: {value: 4}\n")
    assert found.startswith("layer1/g.yaml:3:18: limit = 4 is outside 0.5..3")


def test_new_rules_and_variables_may_be_added(tmp_path: Path) -> None:
    team = """\
group: g
vars:
  more: {value: 7, unit: nats, doc: d}
rules:
  - {alert: New, id: new, expr: level > $more, severity: warning, summary: s}
  - {record: level, expr: 'mean(x[5])'}
"""
    bundle = loaded(tmp_path, BASE, team)
    assert [rule.id for rule in bundle.alerts] == ["gap", "other", "new"]
    assert [(rule.name, rule.expr) for rule in bundle.records] == [("level", "mean(x[5])")]
    assert bundle.depth == 5


def test_unset_gives_the_default_back(tmp_path: Path) -> None:
    rule = loaded(tmp_path, BASE, "group: g\nrules:\n  - id: gap\n    unset: [keep, for]\n").alert("Gap")
    assert (rule.keep, rule.hold) == (NOT_AT_ALL, Span(Domain.RECORDS, 1))


def test_what_was_unset_may_be_set_again_by_a_third_layer(tmp_path: Path) -> None:
    off, on = "group: g\nrules:\n  - id: gap\n    unset: [keep]\n", "group: g\nrules:\n  - id: gap\n    keep: 9 records\n"
    assert loaded(tmp_path, BASE, off, on).alert("Gap").keep == Span(Domain.RECORDS, 9)


def test_the_layer_of_a_group_may_be_changed(tmp_path: Path) -> None:
    assert {rule.layer for rule in loaded(tmp_path, BASE, "group: g\nlayer: 4\n").alerts} == {4}


def test_every_leaf_knows_who_said_it(tmp_path: Path) -> None:
    organisation = "group: g\nvars:\n  limit:\n    value: 2\n"
    team = "group: g\nrules:\n  - id: gap\n    severity: page\n"
    bundle = loaded(tmp_path, BASE, organisation, team)
    marks = {key: (Path(mark.file).parent.name, mark.line, mark.column) for key, mark in bundle.alert("gap").marks.items()}
    assert marks["severity"] == ("layer2", 4, 15)
    assert marks["expr"] == ("layer0", 11, 11)
    assert marks["id"][0] == "layer2", "the last file that names it"
    variable = bundle.group("g").vars["limit"].marks
    assert (Path(variable["value"].file).parent.name, variable["value"].line) == ("layer1", 4)
    assert Path(variable["unit"].file).parent.name == "layer0"


def test_a_fault_in_a_changed_field_is_shown_in_the_file_that_has_it(tmp_path: Path) -> None:
    team = "group: g\nrules:\n  - id: gap\n    expr: level > $limt\n    severity: loud\n    kep: 3 records\n"
    found = faults(tmp_path, BASE, team)
    assert [line.split(": ")[0] for line in found] == ["layer1/g.yaml:4:19", "layer1/g.yaml:5:15", "layer1/g.yaml:6:5"]
    assert "did you mean 'limit'" in found[0]


# ---- what it may not ----------------------------------------------------------------------------------------------------

FINAL = BASE.replace("    next: [one, two]\n", "    next: [one, two]\n    final: [severity, keep, stage]\n")


@pytest.mark.parametrize(
    ("base", "team", "place", "says"),
    [
        (FINAL, "rules:\n  - {id: gap, severity: page}\n", "3:15", "'severity' of gap is final, see {0}:17:13"),
        (FINAL, "rules:\n  - {id: gap, stage: shadow}\n", "3:15", "'stage' of gap is final"),
        (FINAL, "rules:\n  - id: gap\n    unset: [keep]\n", "4:13", "'keep' of gap is final, see {0}:17:23"),
        (FINAL, "overrides:\n  - {match: {a: b}, severity: {gap: page}}\n", "3:32", "'severity' of gap is final"),
        (BASE.replace("range:", "final: [value], range:"), "vars:\n  limit: {value: 2}\n", "3:11", "'value' of limit is final"),
        (
            BASE.replace("range:", "final: [value], range:"),
            "overrides:\n  - {match: {a: b}, vars: {limit: 2}}\n",
            "3:28",
            "'value' of limit is final",
        ),
        (BASE + "final: [layer]\n", "layer: 2\n", "2:1", "'layer' is final"),
        (BASE, "rules:\n  - id: gap\n    unset: [leave]\n", "4:13", "'leave' of gap is not set by an earlier layer"),
        (BASE, "rules:\n  - id: gap\n    unset: [kep]\n", "4:13", "'kep' is no field (did you mean 'keep'?)"),
        (BASE, "rules:\n  - id: gap\n    unset: [id]\n", "4:13", "it cannot be unset"),
        (BASE, "rules:\n  - id: gap\n    keep: 1 records\n    unset: [keep]\n", "5:13", "set here and unset here"),
        (BASE, "rules:\n  - id: gap\n    unset: keep\n", "4:12", "write unset: [expr]"),
        (BASE, "rules:\n  - id: gap\n    final: [[a]]\n", "4:13", "is no field"),
        (BASE, "rules:\n  - id: gap\n    unset: [severity]\n", None, "key 'severity' is missing"),
        (
            BASE,
            "rules:\n  - {id: othr, severity: page}\n",
            "3:10",
            "no earlier layer has a rule with id 'othr' in this group (did",
        ),
        (BASE, "rules:\n  - {severity: page}\n", "3:5", "a rule needs its name"),
        (BASE, "rules:\n  - {id: 7, severity: page}\n", "3:10", "a rule needs its name as text"),
        (BASE, "rules:\n  - {id: gap}\n  - {id: gap}\n", "4:10", "id 'gap' is there twice"),
        (BASE, "rules:\n  - gap\n", "3:5", "a rule is a mapping"),
        (BASE, "rules: gap\n", "2:8", "expected a list of rules"),
        (BASE, "vars: [limit]\n", "2:7", "vars are named entries"),
        (BASE, "vars: {limit: 2}\n", "2:15", "write limit: {value: ...,"),
        (BASE, "overrides: {limit: 2}\n", "2:12", "expected a list"),
        (BASE, "colour: red\n", "2:1", "unknown key 'colour'"),
    ],
)
def test_what_a_later_layer_may_not_do(tmp_path: Path, base: str, team: str, place: str | None, says: str) -> None:
    found = faults(tmp_path, base, "group: g\n" + team)
    wanted = says.replace("{0}", str(tmp_path / "layer0" / "g.yaml"))
    where = "layer0/" if place is None else f"layer1/g.yaml:{place}: "
    assert any(line.startswith(where) and wanted in line for line in found), found


def test_a_group_that_no_earlier_layer_has(tmp_path: Path) -> None:
    (found,) = faults(tmp_path, BASE.replace("group: g", "group: numbers"), "group: nunbers\nrules:\n  - {id: gap}\n")
    assert found.startswith("layer1/g.yaml:1:8: no earlier layer has the group 'nunbers' (did you mean 'numbers'?)")


def test_a_change_of_rules_that_stands_first_says_what_has_to_come_before_it(tmp_path: Path) -> None:
    """As with `--no-shipped`: one fault that names the cause, instead of one for each thing that only the base has."""
    change = "group: g\noverrides:\n  - {match: {a: b}, vars: {limit: 2}}\nrules:\n  - {id: gap, for: 3 records}\n"
    (found,) = faults(tmp_path, change)
    assert found.startswith("layer0/g.yaml:1:8: no earlier layer has the group 'g' (its rules are changed here by id")
    (tmp_path / "new").mkdir()
    assert any("key 'layer' is missing" in line for line in faults(tmp_path / "new", change + "  - {alert: New, id: new}\n"))


def test_an_id_belongs_to_one_group(tmp_path: Path) -> None:
    other = BASE.replace("group: g", "group: h").replace("record: level", "record: level2").replace("level >", "level2 >")
    found = faults(tmp_path, BASE, other)
    assert sum("is there twice" in line for line in found) == 4


def test_there_is_nothing_to_unset_in_the_first_layer() -> None:
    with pytest.raises(ConfigErrors, match=r"g.yaml:16:13: nothing to unset"):
        load_text(BASE.replace("    next: [one, two]\n", "    unset: [next]\n"), "g.yaml")


def test_final_says_nothing_to_its_own_file() -> None:
    assert load_text(FINAL).alert("gap").severity is Severity.STOP


# ---- the algebra --------------------------------------------------------------------------------------------------------

_PATHS: list[LeafPath] = [
    ("head", "layer"),
    ("vars", "a", "value"),
    ("vars", "a", "range"),
    ("rules", "r", "expr"),
    ("rules", "r", "keep"),
    ("rules", "record s", "expr"),
]


@st.composite
def a_layer(draw: st.DrawFn) -> Layer:
    file = draw(st.sampled_from(["a", "b", "c", "d"]))
    lines = iter(range(1, 99))
    leaves: dict[LeafPath, Leaf] = {}
    for path in draw(st.lists(st.sampled_from(_PATHS), unique=True)):
        mark = Mark(file, next(lines), 1)
        leaves[path] = Leaf(mark, draw(st.sampled_from([None, Scalar("v", "v", mark, True)])))
    final = {path: Mark(file, next(lines), 1) for path in draw(st.lists(st.sampled_from(_PATHS), unique=True))}
    places = {path[:2]: Mark(file, next(lines), 1) for path in leaves}
    nodes = [Scalar(f"o{number}", "", Mark(file, next(lines), 1), True) for number in range(draw(st.integers(0, 2)))]
    return Layer(leaves, final, places, tuple(nodes))


def ordered(layer: Layer) -> tuple[object, ...]:
    """A layer with the order of its parts: rules keep their place."""
    return list(layer.leaves.items()), dict(layer.final), list(layer.places.items()), layer.overrides


@given(a_layer(), a_layer(), a_layer())
def test_merging_is_associative(one: Layer, two: Layer, three: Layer) -> None:
    assert ordered(merge(merge(one, two), three)) == ordered(merge(one, merge(two, three)))


@given(a_layer(), a_layer())
def test_merging_is_idempotent_and_has_a_neutral_layer(one: Layer, two: Layer) -> None:
    assert ordered(merge(one, one)) == ordered(one)
    both = merge(one, two)
    assert ordered(merge(both, two)) == ordered(both)
    assert ordered(merge(Layer(), one)) == ordered(one) == ordered(merge(one, Layer()))


@given(a_layer(), a_layer(), a_layer())
def test_a_final_field_is_guarded_against_every_later_layer(one: Layer, two: Layer, three: Layer) -> None:
    told = {error.message.split(" is final")[0] for error in conflicts(merge(one, two), three) if "is final" in error.message}
    for path in three.leaves.keys() & (one.final.keys() | two.final.keys()):
        assert any(path[-1] in text for text in told)
    if not three.leaves.keys() & (one.final.keys() | two.final.keys()):
        assert not told
