"""What is used of grafana-foundation-sdk 0.0.21. The only module that imports it, since its import warns.

Traps of its builders, which `builders` and `panel_builders` set right for all panels alike: ids, places, legends, tooltips, the
placement of links. Source: the SDK's own output, and Grafana's front end.
"""

from __future__ import annotations

import warnings
from typing import Final

with warnings.catch_warnings():
    # The builder of Classic dashboards says at its import that there is a newer kind. Classic is what every Grafana reads.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import common as common_builders
    from grafana_foundation_sdk.builders import dashboard as dashboards
    from grafana_foundation_sdk.builders import prometheus, stat, statetimeline, table, timeseries
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common
    from grafana_foundation_sdk.models import dashboard as models
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = common.DataSourceRef(type_val="prometheus", uid="${datasource}")
"""The data source that is picked at the top."""

__all__ = (
    "SOURCE",
    "JSONEncoder",
    "PromQueryFormat",
    "common",
    "common_builders",
    "dashboards",
    "models",
    "prometheus",
    "stat",
    "statetimeline",
    "table",
    "timeseries",
)
