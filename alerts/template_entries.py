"""`templates:` of alerts.yaml: by receiver, by kind, or `default`; each tried when it is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import jinja2
import msgspec

from alerts.templates import PARTS, TemplateFault, try_out
from rules.config_errors import ConfigError
from rules.names import suggestion
from rules.yaml_tree import Node, find

DEFAULT = "default"


class TemplatesEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The parts of a message that are worded otherwise."""

    title: str | None = None
    summary: str | None = None
    body: str | None = None


TemplateParts = Mapping[str, Mapping[str, jinja2.Template]]
"""By receiver, kind or `default`, then by part."""


def read_templates(
    entries: Mapping[str, TemplatesEntry],
    node: Node,
    receivers: Collection[str],
    kinds: Collection[str],
    errors: list[ConfigError],
) -> TemplateParts:
    """Compile and try all of them; faults are appended with their place."""
    found: dict[str, dict[str, jinja2.Template]] = {}
    known = {DEFAULT, *receivers, *kinds}
    for name, entry in entries.items():
        if name not in known:
            hint = suggestion(name, known) or f" (known here: {', '.join(sorted(known))})"
            errors.append(
                find(node, name).mark.error(f"templates are for receivers, kinds or `default`, not for {name!r}{hint}")
            )
            continue
        for part in PARTS:
            text = getattr(entry, part)
            if text is None:
                continue
            try:
                found.setdefault(name, {})[part] = try_out(text, part)
            except TemplateFault as fault:
                errors.append(find(node, name, part).mark.error(f"the template of the {part} {fault}"))
    return found
