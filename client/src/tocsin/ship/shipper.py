"""Carries records from logs to a transport. A bookmark moves only after the transport has confirmed what came before it.

At least once: whatever happens in between, nothing is left out; what is sent again is sent as the same whole record. While
the transport does not confirm, nothing more is read, so memory stays bounded and the log itself is the buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tocsin import wire
from tocsin.formats import Parsed, UnknownFormat
from tocsin.ship.bookmarks import Bookmark
from tocsin.ship.source import Followed, Forgetful, Reading
from tocsin.transports import Message, Transport
from tocsin.wire import RunRecord, StepRecord

FLUSH_SECONDS: Final = 5.0
MAX_REWINDS: Final = 20
"""A transport that drops again and again ends a last look; a follower goes on at its pace."""
_REFUSED: Final = "refused"
_SHOWN: Final = 5


@dataclass(frozen=True)
class Additions:
    """What the command line adds to each run record."""

    labels: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Tally:
    """What happened so far."""

    steps: int = 0
    others: int = 0
    """Run and end records."""
    unreadable: int = 0
    refused: int = 0
    failed: int = 0
    """Logs that cannot be read at all, and bookmarks that cannot be kept."""


class Log:
    """One followed log: its source, and where its bookmark goes."""

    def __init__(self, follower: Followed, reading: Reading) -> None:
        self.follower = follower
        self.reading = reading
        self.waiting: Bookmark | None = None
        """A place that the transport has not confirmed yet."""
        self.over = False
        self.said = ""
        """The trouble that was told last, so that it is told once."""
        self.shown = 0


class Shipper:
    """Polls logs and sends what they give."""

    def __init__(
        self,
        logs: Sequence[Log],
        transport: Transport,
        say: Callable[[str], None],
        additions: Additions | None = None,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        self.tally = Tally()
        self._logs = logs
        self._transport = transport
        self._say = say
        self._additions = additions or Additions()
        self._flush_seconds = flush_seconds
        self._sent: list[Log] = []
        """Logs with records that wait for confirmation."""
        self._stuck = self._rewound = False
        self._rewinds = 0
        self._lost = self._dropped()

    @property
    def over(self) -> bool:
        """Every log has failed for good: nothing can come any more."""
        return all(log.over for log in self._logs)

    def poll_once(self, last: bool = False) -> bool:
        """One look at every log. True when there is more to do at once. `last`: the logs will not grow any more."""
        if self._sent and not self._confirm():
            for log in self._logs:
                if not log.over and isinstance(log.follower, Forgetful):
                    log.follower.observe()
            return self._read_again(last)
        more = False
        for log in self._logs:
            if not log.over:
                more = self._poll(log, last) or more
        return more if not self._sent or self._confirm() else self._read_again(last)

    def settle(self) -> bool:
        """Try to have the rest confirmed before the end. Whether nothing waits any more, and nothing has to be read again."""
        return (not self._sent or self._confirm()) and not self._rewound

    def _read_again(self, last: bool) -> bool:
        """Whether to go on at once after a confirmation that did not come: only when a last look has to be repeated."""
        return last and not self._sent and self._rewinds < MAX_REWINDS

    def close(self) -> None:
        """Let go of the logs; the transport belongs to the caller."""
        for log in self._logs:
            log.follower.close()

    def _poll(self, log: Log, last: bool) -> bool:
        try:
            batch = log.follower.poll(last)
        except UnknownFormat as error:
            self._fail(log, str(error))
            return False
        except OSError as error:
            if last:
                self._fail(log, f"{log.follower.name}: {error.strerror or error}")
            else:
                self._once(log, f"{log.follower.name}: {error.strerror or error}; trying again")
            return False
        for note in batch.notes:
            self._say(f"{log.follower.name}: {note}")
        messages = [message for parsed in batch.parsed if (message := self._message(log, parsed)) is not None]
        if messages:
            self._transport.send(messages)
        if messages or batch.bookmark is not None:
            log.waiting = batch.bookmark or log.waiting
            if log not in self._sent:
                self._sent.append(log)
        return batch.more

    def _message(self, log: Log, parsed: Parsed) -> Message | None:
        record = parsed.record
        if record is None:
            self.tally.unreadable += 1
            log.shown += 1
            if log.shown <= _SHOWN:
                tail = " (further ones of this log are only counted)" if log.shown == _SHOWN else ""
                self._say(f"{log.follower.name}: unreadable at {parsed.offset}: {parsed.error:.300}{tail}")
            return None
        value = parsed.value
        if isinstance(record, RunRecord):
            self.tally.others += 1
            if self._additions.labels or self._additions.config:
                labels, config = {**record.labels, **self._additions.labels}, {**record.config, **self._additions.config}
                record, value = msgspec.structs.replace(record, labels=labels, config=config), b""
        elif isinstance(record, StepRecord):
            self.tally.steps += 1
        else:
            self.tally.others += 1
        return Message(record.run, value or wire.encode(record), record.time, not isinstance(record, StepRecord))

    def _confirm(self) -> bool:
        """Have the transport confirm what was sent; then keep the bookmarks. False while it does not."""
        # A transport is content when records are in its fallback folder; here only their arrival counts, the log is safe.
        confirmed = self._transport.flush(self._flush_seconds) and not self._transport.counts().waiting
        lost, self._lost = self._dropped() - self._lost, self._dropped()
        if lost > 0:
            self._say(f"the transport dropped {lost} records; reading them again")
            for log in self._sent:
                log.follower.rewind()
                log.waiting = None
            self._sent.clear()
            self._rewound = True
            self._rewinds += 1
            return False
        if not confirmed:
            if not self._stuck:
                self._say("the transport does not confirm; waiting, the logs keep what is new")
            self._stuck = True
            return False
        if self._stuck:
            self._say("the transport confirms again")
        self._stuck = self._rewound = False
        for log in self._sent:
            self._keep(log)
        self._sent.clear()
        return True

    def _keep(self, log: Log) -> None:
        if log.waiting is None:
            return
        try:
            log.reading.bookmarks.put(log.reading.key, log.waiting)
        except OSError as error:
            path = log.reading.bookmarks.path
            self.tally.failed += not log.said
            self._once(log, f"{path}: cannot keep the place in the log: {error.strerror or error}. Use --state FILE.")
        log.waiting = None

    def _dropped(self) -> int:
        """Records lost on the way that reading them again can bring; a refused one is refused again."""
        dropped = self._transport.counts().dropped
        self.tally.refused = dropped.get(_REFUSED, 0)
        return sum(dropped.values()) - self.tally.refused

    def _fail(self, log: Log, text: str) -> None:
        log.over = True
        self.tally.failed += 1
        self._say(text)

    def _once(self, log: Log, text: str) -> None:
        if log.said != text:
            log.said = text
            self._say(text)
