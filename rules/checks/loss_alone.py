"""`loss-alone`: an alert that looks at nothing but losses. The loss of a policy gradient says little; it never alerts alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Call, walk

CODE: Final = "loss-alone"


def check(context: Context) -> Iterator[Finding]:
    for rule in context.bundle.alerts:
        names = context.metrics(rule.node)
        called = {node.function for node in walk(rule.node) if isinstance(node, Call)}
        if (
            names
            and all(name.endswith("_loss") for name in names)
            and not called & {"firing", "fired_within", "nonfinite", "is_nan"}
        ):
            text = f"{rule.name} looks at {', '.join(names)} alone, which moves on healthy runs and rests on broken ones"
            yield warning(CODE, context.mark(rule, "expr"), f"{text} (join it with grad_norm, kl_reference or the reward)")
