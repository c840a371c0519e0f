"""The JSON Schema: generated, kept, takes whatever the loader takes, and sees the mistakes that an editor can see."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rules.config_errors import ConfigError
from rules.loader import shipped_packs
from rules.rule_file import AlertSpec, FileSpec, OverrideSpec, RecordSpec, VariableSpec
from rules.schema import schema, schema_text
from rules.strict_yaml import read_tree
from rules.timing import parse_span, span_pattern
from rules.typed_yaml import plain
from tests.kit.json_schema import faults

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / "docs" / "rules" / "rule-file.schema.json"


def found(path: Path) -> list[str]:
    """What the schema says of a file."""
    ignored: list[ConfigError] = []
    tree = read_tree(path.read_text(encoding="utf-8"), str(path), ignored)
    assert tree is not None
    whole = schema()
    return list(faults(plain(tree), whole, whole))


def test_the_kept_schema_is_the_one_of_the_types() -> None:
    assert KEPT.read_text(encoding="utf-8") == schema_text(), "tocsin rules schema > docs/rules/rule-file.schema.json"


@pytest.mark.parametrize(
    "path", [*sorted((HERE / "good").glob("*.yaml")), *sorted(shipped_packs().glob("*.yaml"))], ids=lambda path: path.stem
)
def test_what_loads_is_valid(path: Path) -> None:
    assert found(path) == []


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("alert-name", "/rules/0/alert: 'high_norm' does not match"),
        ("group-name", "/group: 'My Rules' does not match"),
        ("hold-unit", "/rules/0/for: '3 rows' does not match"),
        ("hold-without-unit", "/rules/0/for: not of type string"),
        ("id-name", "/rules/0/id: 'HighNorm' does not match"),
        ("layer", "/layer: maximum is 6"),
        ("list-for-file", ": not of type object"),
        ("next-text", "/rules/0/next: not of type array"),
        ("no-kind", "/rules/0/rule: unknown key"),
        ("no-rules", "/rules: minItems is 1"),
        ("number-for-text", "/rules/0/runbook: not of type string"),
        ("number-quoted", "/vars/limit/value: not of type number"),
        ("on-gap", "/rules/0/on_gap: none of ['hold', 'reset', 'count']"),
        ("record-name", "/rules/0/record: 'GradMean' does not match"),
        ("runbook-name", "/rules/0/runbook: 'High_Norm.md' does not match"),
        ("severity", "/rules/0/severity: none of ['info', 'warning', 'page', 'stop']"),
        ("unknown-key", "/rules/0/severty: unknown key"),
    ],
)
def test_what_an_editor_marks(name: str, says: str) -> None:
    assert any(line.startswith(says) for line in found(HERE / "bad" / f"{name}.yaml")), found(HERE / "bad" / f"{name}.yaml")


def test_a_later_layer_is_valid_by_itself(tmp_path: Path) -> None:
    text = "group: sample\nvars:\n  limit: {value: 7}\nrules:\n  - {id: high, severity: page, unset: [keep], final: [expr]}\n"
    (tmp_path / "team.yaml").write_text(text, encoding="utf-8")
    assert found(tmp_path / "team.yaml") == []
    (tmp_path / "team.yaml").write_text(text.replace("[keep]", "[id]"), encoding="utf-8")
    assert found(tmp_path / "team.yaml") == [
        f"/rules/0/unset/0: none of {schema()['definitions']['AlertSpec']['properties']['unset']['items']['enum']}"
    ]


def test_every_key_of_the_types_is_there_and_described() -> None:
    whole = schema()
    for kind in (VariableSpec, AlertSpec, RecordSpec, OverrideSpec, FileSpec):
        part = whole if kind is FileSpec else whole["definitions"][kind.__name__]
        assert list(part["properties"]) == list(kind.__struct_encode_fields__)
        assert all(field["description"].endswith((".", "...")) for field in part["properties"].values())


@pytest.mark.parametrize(
    "text",
    ["3 records", "1 record", "3 steps", "10m", "1.5h", "90s", "3 of 5 records", "3", "3 rows", "0 records", "m", "-1s", ""],
)
def test_the_pattern_of_a_span_is_what_is_read_as_one(text: str) -> None:
    def reads(m_of_n: bool) -> bool:
        try:
            parse_span(text, m_of_n=m_of_n)
        except ValueError:
            return False
        return True

    for m_of_n in (False, True):
        assert bool(re.fullmatch(span_pattern(m_of_n=m_of_n), text)) is reads(m_of_n)
