"""The chart of an incident, uploaded into the thread of its message. It may fail; the message has gone out before.

Three calls: files.getUploadURLExternal says where to, the bytes go there without the token, files.completeUploadExternal shares
the file in the thread. The token needs the scope `files:write`. Each call has less patience than a message, and after a failure
none is made for five minutes: pages that wait behind this one must not wait for a picture.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from alerts.model import Delivery, Outcome
from alerts.receivers.http import Answer, Http
from alerts.receivers.settings import Chart, HttpSettings, Tools, check_address
from alerts.receivers.slack_api import Body, SlackApi
from alerts.secrets import SecretRef
from alerts.text import clean_line, cut_characters

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 300.0
"""After a failure."""
MOST: Final = 10
PER_SECONDS: Final = 60.0
"""In a storm the first ten incidents of a minute have charts in Slack; all have them on their pages."""
MAX_BYTES: Final = 2 * 1024 * 1024
_CONNECT: Final = 2.0
_TIMEOUT: Final = 3.0
_ALT: Final = 1_000
"""Characters of the words for who does not see it."""


class SlackFiles:
    """Of one bot in one channel; used by its worker's thread."""

    def __init__(self, api: str, channel: str, token: SecretRef, settings: HttpSettings, tools: Tools) -> None:
        hasty = replace(
            settings, connect_timeout=min(settings.connect_timeout, _CONNECT), timeout=min(settings.timeout, _TIMEOUT)
        )
        self._channel = channel
        self._loopback = urlsplit(api).scheme == "http"
        self._api = SlackApi(api, channel, token, hasty, tools)
        self._http = Http(hasty, tools)
        self._draw = tools.chart
        self._clock = tools.clock
        self._paused_at: float | None = None
        self._begun: deque[float] = deque(maxlen=MOST)

    def add(self, row: Delivery, thread: str) -> None:
        """Draw the chart of the row's incident and put it into the thread of the message `thread`. Never raises."""
        if self._draw is None or not self._may(self._clock()):
            return
        try:
            drawn = self._draw(row)
            if drawn is None or len(drawn.png) > MAX_BYTES:
                return
            self._begun.append(self._clock())
            failed = self._upload(drawn, thread)
        except Exception as error:
            # Nothing of a picture may be the reason why a message counts as not sent.
            log.warning("the chart of incident %s did not get to slack: %s", row.incident, type(error).__name__)
            self._paused_at = self._clock()
            return
        if failed is not None:
            hint = " (the bot needs the scope files:write)" if failed.detail == "missing_scope" else ""
            log.warning("the chart of incident %s did not get to slack: %s%s", row.incident, failed.detail, hint)
            self._paused_at = self._clock()

    def close(self) -> None:
        self._api.close()
        self._http.close()

    def _may(self, now: float) -> bool:
        if self._paused_at is not None and 0.0 <= now - self._paused_at < PAUSE_SECONDS:
            return False
        self._paused_at = None
        return len(self._begun) < MOST or not 0.0 <= now - self._begun[0] < PER_SECONDS

    def _upload(self, drawn: Chart, thread: str) -> Outcome | None:
        """The failure; None when it is there."""
        alt = cut_characters(clean_line(drawn.words), _ALT).text
        asked = {"filename": "chart.png", "length": str(len(drawn.png)), "alt_txt": alt}
        outcome, body = self._api.get("files.getUploadURLExternal", asked)
        if not outcome.ok or body is None:
            return outcome
        place, file = _place(body, loopback=self._loopback)
        if not place:
            return Outcome(ok=False, reason="bad_answer", detail="slack names no address to upload to")
        answer = self._http.post(place, drawn.png, {"content-type": "image/png"})
        outcome = answer.outcome if isinstance(answer, Answer) else answer
        if not outcome.ok:
            return outcome
        title = cut_characters(clean_line(drawn.title), 200).text
        shared = {"files": [{"id": file, "title": title}], "channel_id": self._channel, "thread_ts": thread}
        outcome, _ = self._api.post("files.completeUploadExternal", shared)
        return None if outcome.ok else outcome


def _place(body: Body, *, loopback: bool) -> tuple[str, str]:
    """Where the bytes go, and the file's id; empty when the answer has no address that is safe to be used."""
    place, file = body.get("upload_url"), body.get("file_id")
    if not isinstance(place, str) or not isinstance(file, str):
        return "", ""
    try:
        check_address(place, secret_goes_there=True)
    except ValueError:
        return "", ""
    return (place, file) if loopback or urlsplit(place).scheme == "https" else ("", "")
