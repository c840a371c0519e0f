"""Store and forward: everything about a broker that comes and goes, and nothing about Kafka.

One thread delivers: take the oldest messages, pass them to the link, and forget them when they are confirmed, and only then.
When the link fails, it is thrown away, what is in memory goes to the fallback folder, and a new link is tried with growing
pauses; then delivery begins again with the first message that is not confirmed. So messages may arrive twice, but none is
lost, and none overtakes another.

    connecting -> online -> (link fails) -> offline -> online ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from tocsin.control import StopRequest
from tocsin.transports import Message, TransportCounts
from tocsin.transports.backlog import Backlog
from tocsin.warn import forget, warn_once

CHUNK_MESSAGES: Final = 500
CHUNK_BYTES: Final = 512 * 1024
RETRY_FIRST: Final = 0.25
RETRY_LAST: Final = 5.0
PATIENCE_LAST: Final = 60.0
CONTROL_INTERVAL: Final = 1.0


class LinkDown(Exception):
    """The broker cannot be reached or does not answer; the link is of no further use."""


class _Again(Exception):
    """The broker is there and refused something: a new link, at once."""


class Outcome(NamedTuple):
    """What became of a chunk. With `refused` or `down` the link is of no further use, else all is confirmed."""

    confirmed: int
    """Messages confirmed, counted from the first."""
    refused: str = ""
    """Why the broker says that a message can never be delivered (too large). A batch is refused as a whole, so only a
    message that was sent alone is known to be meant."""
    down: str = ""
    """What else went wrong; what is not confirmed may have arrived or not."""


class Link(Protocol):
    """One connection to a broker, used by one thread."""

    def deliver(self, messages: Sequence[Message], patience: float) -> Outcome:
        """Send messages in order and wait up to `patience` seconds for their confirmation. Does not raise."""

    def watch(self, run: str) -> None:
        """Look for stop requests to this run that come from now on. Raises LinkDown."""

    def stop_request(self) -> StopRequest | None:
        """The newest one since the last call, None if there is none. Raises LinkDown."""

    def close(self) -> None:
        """Drop the connection and whatever is under way. Does not raise and does not wait for a broker."""


class StoreAndForward:
    """A transport over links that come and go. `connect` makes a link or raises LinkDown; it may take seconds."""

    # `_limit`, how many messages are sent as one chunk, halves with every failure and doubles with every success: so one
    # message that the broker refuses is soon alone in a chunk, and then it is dropped and not its neighbours.

    def __init__(
        self,
        connect: Callable[[], Link],
        backlog: Backlog,
        *,
        patience: float = 5.0,
        retry: tuple[float, float] = (RETRY_FIRST, RETRY_LAST),
        name: str = "the broker",
    ) -> None:
        self._connect = connect
        self._backlog = backlog
        self._patience = patience
        self._retry = retry
        self._name = name
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._offline = False
        self._watched = ""
        self._request: StopRequest | None = None
        self._delivered = 0
        self._refused = 0
        self._limit = CHUNK_MESSAGES
        self._late = 0
        self._errors = 0

    def send(self, messages: Sequence[Message]) -> None:
        if self._closing:
            self._late += len(messages)
            return
        self._backlog.append(messages)
        if self._offline:
            self._backlog.spill()
        self._begin()
        with self._changed:
            self._changed.notify_all()

    def watch(self, run: str) -> None:
        self._watched = run
        self._begin()

    def stop_request(self) -> StopRequest | None:
        return self._request

    def flush(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        with self._changed:
            while len(self._backlog) and not self._stored():
                remaining = deadline - time.monotonic()
                if remaining <= 0 or self._thread is None:
                    return self._stored()
                self._changed.wait(remaining)
        return True

    def _stored(self) -> bool:
        """While the broker is away, disk is as far as a message gets."""
        return self._offline and self._backlog.in_memory == 0

    def close(self, timeout: float) -> None:
        if self._closing:
            return
        deadline = time.monotonic() + timeout
        self.flush(timeout)
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()) + 0.5)
        self._backlog.close()

    def counts(self) -> TransportCounts:
        backlog = self._backlog
        dropped = dict(backlog.dropped)
        for reason, count in (("refused", self._refused), ("closed", self._late)):
            if count:
                dropped[reason] = count
        return TransportCounts(
            delivered=self._delivered,
            waiting=len(backlog),
            spooled=backlog.spooled,
            dropped=dropped,
            errors=self._errors + backlog.errors,
        )

    def drop_descriptors(self) -> None:
        """In a forked child: let go of what belongs to the parent."""
        self._closing = True
        self._backlog.drop_descriptors()

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tocsin-delivery", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        link: Link | None = None
        watched = ""
        pause, patience = self._retry[0], self._patience
        self._backlog.adopt()
        while not self._closing:
            try:
                if link is None:
                    link, watched = self._connect(), ""
                if self._watched and watched != self._watched:
                    # Before the first record leaves: a request that it causes must not be taken for an old one.
                    link.watch(self._watched)
                    watched = self._watched
                self._online()
                patience = self._work(link, patience)
                pause = self._retry[0]
            except _Again:
                if link is not None:
                    link.close()
                    link = None
            except Exception as error:
                # Anything that a client library may throw means the same here: this link is over, try another.
                self._lost(error)
                if isinstance(error, TimeoutError):
                    patience = min(2 * patience, PATIENCE_LAST)
                if link is not None:
                    link.close()
                    link = None
                self._wait(pause)
                pause = min(2 * pause, self._retry[1])
        if link is not None:
            link.close()

    def _work(self, link: Link, patience: float) -> float:
        """One round on a good link: deliver a chunk, or wait for one; look for a stop request. Returns the patience."""
        entries = self._backlog.peek(self._limit, CHUNK_BYTES)
        if entries:
            outcome = link.deliver([entry.item for entry in entries], patience)
            self._delivered += outcome.confirmed
            settled = outcome.confirmed
            if outcome.refused and len(entries) == 1:
                self._refused += 1
                settled = 1
                warn_once("refused", f"{self._name} refuses a record of run {entries[0].item.run!r}: {outcome.refused}")
            if settled:
                self._backlog.done(entries[settled - 1].number)
                with self._changed:
                    self._changed.notify_all()
            if outcome.refused or outcome.down:
                self._limit = max(1, (len(entries) - outcome.confirmed) // 2)
                raise _Again if outcome.refused else TimeoutError(outcome.down)
            self._limit = min(CHUNK_MESSAGES, 2 * self._limit)
        if self._watched:
            self._request = link.stop_request() or self._request
        if not entries:
            self._wait(CONTROL_INTERVAL, until_work=True)
        return self._patience

    def _wait(self, seconds: float, until_work: bool = False) -> None:
        with self._changed:
            if not self._closing and not (until_work and len(self._backlog)):
                self._changed.wait_for(lambda: self._closing or (until_work and len(self._backlog) > 0), seconds)

    def _online(self) -> None:
        if self._offline:
            self._offline = False
            forget("offline")

    def _lost(self, error: Exception) -> None:
        self._errors += 1
        warn_once("offline", f"{self._name} is away ({error}); records wait in the fallback folder")
        # The flag first: a message that is appended between the two lines is brought to disk by `send` itself.
        self._offline = True
        self._backlog.spill()
        with self._changed:
            self._changed.notify_all()
