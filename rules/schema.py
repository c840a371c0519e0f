"""The JSON Schema of a rule file, for editors: generated from the types that read it.

A schema sees one file; the loader sees the layers before it. So what an earlier layer may have said is not required here, and
names, expressions and places are the business of `tocsin rules check`. Whatever the loader takes, the schema takes.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from rules.bundle import OnGap, OnNonFinite, Stage
from rules.model import Severity
from rules.names import CAMEL_CASE, KEBAB_CASE, SNAKE_CASE
from rules.rule_file import AlertSpec, FileSpec, OverrideSpec, RecordSpec, VariableSpec, field_names
from rules.timing import span_pattern

DRAFT: Final = "http://json-schema.org/draft-07/schema#"
"""The draft that editors' YAML language servers know best."""

_FOUND_BY: Final = {"FileSpec": ["group"], "AlertSpec": ["id"], "RecordSpec": ["record"], "OverrideSpec": ["match"]}
"""What an entry cannot be without in any layer."""

_KINDS: Final = {"FileSpec": "head", "VariableSpec": "vars", "AlertSpec": "alert", "RecordSpec": "record"}
_IDENTITY: Final = frozenset({"id", "record", "group"})
"""What an entry is found by, which cannot be unset."""

_SAID: Final = {
    "group": "Name of the group, in kebab-case. A later layer changes the group of an earlier one by this name.",
    "layer": "0 life cycle, 1 probability, 2 gradient and mask, 3 numbers, 4 optimiser, 5 reward, 6 diversity.",
    "question": "The question that the group answers.",
    "vars": "Numbers with unit and meaning: $name in expressions, vars.name in messages.",
    "rules": "Alerts (alert, id, expr, severity, summary), record rules (record, expr), changes of earlier ones (id).",
    "overrides": "Other values for the runs whose labels match.",
    "value": "The number in force.",
    "unit": 'Its unit; "1" for a plain number or ratio.',
    "doc": "What it means.",
    "range": "What a later layer may set it to: [lowest, highest].",
    "alert": "Name of the alert, in CamelCase. It may be changed.",
    "id": "Identity of the alert, in kebab-case. It never changes.",
    "record": "Name of the series, in snake_case.",
    "expr": "The condition of an alert, or the number of a record rule; see the page of the language.",
    "for": "How long the condition must hold: 3 records, 3 steps, 10m, 3 of 5 records.",
    "leave": "The condition under which it may end; until then it fires on.",
    "keep": "How long it fires on after it could have ended: 3 records, 3 steps, 10m.",
    "severity": "info shows in the incident, warning goes to chat, page wakes, stop also asks the run to stop.",
    "summary": "The message, a Jinja2 template over value, limit, vars, labels ...",
    "next": "What to look at next, in order.",
    "runbook": "Name of the page in the runbooks folder, in kebab-case.",
    "requires_exact": "Metrics that must not be a proxy or a raw key; with one, the rule does not judge.",
    "independent": "Never explained by an alert of an earlier layer.",
    "warmup": "Records of the run before the first verdict: 20 records.",
    "on_gap": "A record at which the rule cannot be judged: hold the state, reset as if false, count as if true.",
    "on_non_finite": "NaN or infinity: breach (the default of page and stop), or hold.",
    "stage": "shadow: judged and shown, never sent. notify: never louder than a warning. page: as its severity says.",
    "match": "Globs by run label; all must match.",
    "final": "Fields that no later layer may change.",
    "unset": "Fields that go back to their default.",
}


def schema() -> dict[str, Any]:
    """The schema as plain values, its keys in the order in which people write them."""
    kinds = (FileSpec, VariableSpec, AlertSpec, RecordSpec, OverrideSpec)
    _, parts = msgspec.json.schema_components(kinds, ref_template="#/definitions/{name}")
    for name, part in parts.items():
        if "properties" in part:
            _describe(name, part)
    for kind in (Severity, OnGap, OnNonFinite, Stage):
        parts[kind.__name__]["enum"] = [member.value for member in kind]
    alert, record, head = (parts[name]["properties"] for name in ("AlertSpec", "RecordSpec", "FileSpec"))
    _narrow(head["group"], KEBAB_CASE.pattern)
    _narrow(alert["id"], KEBAB_CASE.pattern)
    _narrow(alert["alert"], CAMEL_CASE.pattern)
    _narrow(record["record"], SNAKE_CASE.pattern)
    _narrow(alert["runbook"], KEBAB_CASE.pattern)
    _narrow(alert["for"], span_pattern(m_of_n=True))
    _narrow(alert["keep"], span_pattern())
    head["vars"]["propertyNames"] = {"pattern": f"^({SNAKE_CASE.pattern})$"}
    head["rules"]["items"] = {
        "if": {"required": ["record"]},
        "then": {"$ref": "#/definitions/RecordSpec"},
        "else": {"$ref": "#/definitions/AlertSpec"},
    }
    top = parts.pop("FileSpec")
    return {"$schema": DRAFT, **top, "title": "Tocsin rule file", "definitions": parts}


def schema_text() -> str:
    """The schema as it is kept in docs/rules/rule-file.schema.json."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _describe(name: str, part: dict[str, Any]) -> None:
    """Descriptions, and what a single file can be held to."""
    part["required"] = _FOUND_BY.get(name, [])
    for key, field in part["properties"].items():
        # An empty value is an error in our files, so "no value" is a key that is not there.
        if "anyOf" in field:
            options = [option for option in field.pop("anyOf") if option.get("type") != "null"]
            field |= options[0] if len(options) == 1 else {"anyOf": options}
        if field.get("default", "") in ("", None, [], {}):
            field.pop("default", None)
        if "prefixItems" in field:
            field["items"] = field.pop("prefixItems")[0]
        if "$ref" in field:  # in draft 7 a reference hides what stands beside it
            field["allOf"] = [{"$ref": field.pop("$ref")}]
        field["description"] = _SAID[key]
    for key in ("final", "unset") if name in _KINDS else ():
        names = field_names()[_KINDS[name]]
        allowed = [field for field in names if key == "final" or field not in _IDENTITY]
        part["properties"][key]["items"] = {"type": "string", "enum": allowed}


def _narrow(field: dict[str, Any], pattern: str) -> None:
    """A text of this form, whatever else the reader takes to give a better message."""
    field.pop("anyOf", None)
    field |= {"type": "string", "pattern": f"^({pattern})$"}
