"""What the checks of rules know about metrics: the catalogue and the signals of the collector, told to `rules`."""

from __future__ import annotations

import functools

from collector import catalogue
from collector.signals import definitions
from rules.checks.vocabulary import Known, Vocabulary, value_range


@functools.cache
def vocabulary() -> Vocabulary:
    """Every canonical metric and signal with its unit, range and label, and the frameworks' plain keys for them."""
    frameworks = set(catalogue.aliases()["formats"])
    known: dict[str, Known] = {}
    aliases: dict[str, str] = {}
    entries = catalogue.aliases()["metrics"]
    for measured, metrics in ((True, catalogue.canonical()), (False, definitions())):
        for name, metric in metrics.items():
            low, high = value_range(name, metric.unit, measured=measured)
            logged = [entry for key, entry in entries.get(name, {}).items() if key in frameworks]
            proxied = any(entry.get("class") == "proxy" for entry in logged)
            known[name] = Known(metric.unit, low, high, metric.label, proxied)
            for entry in logged:
                aliases |= {key: name for key in entry["keys"] if not key.startswith("/") and key not in known}
    return Vocabulary(known, aliases)
