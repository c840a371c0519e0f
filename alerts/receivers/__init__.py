"""The kinds of receivers, one file each. A new kind: a file, a line here, a docs page; it passes `tests/kit/receivers.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from alerts.receivers import alertmanager, apprise, console, kafka, pagerduty, slack_bot, slack_webhook, webhook
from alerts.receivers.settings import Kind

KINDS: Final[Mapping[str, Kind]] = {
    "alertmanager": alertmanager.KIND,
    "apprise": apprise.KIND,
    "console": console.KIND,
    "kafka": kafka.KIND,
    "pagerduty": pagerduty.KIND,
    "slack_bot": slack_bot.KIND,
    "slack_webhook": slack_webhook.KIND,
    "webhook": webhook.KIND,
}
