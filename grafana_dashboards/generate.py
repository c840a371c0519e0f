"""All dashboards as text, and whether the committed files are what the code says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from grafana_dashboards.builders import classic
from grafana_dashboards.model import Dashboard
from grafana_dashboards.overview import overview
from grafana_dashboards.rules import rules
from grafana_dashboards.run import run
from grafana_dashboards.service import service
from grafana_dashboards.shipped import text
from rules.bundle import Bundle
from rules.loader import load_bundle, shipped_packs

META_RULES: Final = Path(__file__).parents[1] / "deploy" / "prometheus" / "tocsin-meta-rules.yaml"
"""The rules for Prometheus, whose numbers are drawn on the service dashboard."""


def dashboards(bundle: Bundle | None = None, meta_rules: Path = META_RULES) -> tuple[Dashboard, ...]:
    """All of them; without a bundle, with the lines of the shipped rules. Raises LimitError, ConfigErrors."""
    used = bundle if bundle is not None else load_bundle([shipped_packs()])
    makers: tuple[Callable[[Bundle], Dashboard], ...] = (overview, run, rules)
    return (*(make(used) for make in makers), service(meta_rules))


def generated(bundle: Bundle | None = None, meta_rules: Path = META_RULES) -> dict[str, str]:
    """The JSON text of each dashboard by its uid. Raises LimitError, ConfigErrors."""
    return {each.uid: text(classic(each)) for each in dashboards(bundle, meta_rules)}
