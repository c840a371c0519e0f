"""Stop requests: what the rules may ask of a run, on the topic `tocsin.control` (key = run id) or as a file in the spool.

A request is an offer, never an order: only a run that opted in (`on_stop` other than "ignore") gets one, it is void after
`expires_at`, and the job acknowledges it by its id in its next records (`StepRecord.stop_ack`).

Errors:

    ControlError    the value is no stop request of this version; the client counts it and goes on
"""

from __future__ import annotations

from typing import Final

import msgspec

VERSION: Final = 1
TOPIC: Final = "tocsin.control"
ACTIONS: Final = ("pause", "checkpoint_and_stop")
MAX_REQUEST_BYTES: Final = 64 * 1024


class ControlError(ValueError):
    """The value is no stop request that this version understands."""


class StopRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="stop"):
    """A rule of severity `stop` asks a run to stop. Times are seconds since the epoch, on the collector's clock."""

    run: str
    id: str
    """Names the request in the acknowledgement; equal for every copy of it."""
    rule: str
    """Id of the rule that fired."""
    step: int
    """The step whose record made it fire."""
    reason: str
    """For a person: what is wrong, in one line."""
    action: str
    """pause | checkpoint_and_stop, as the run declared in `on_stop`."""
    requested_at: float
    expires_at: float
    attempt: int = 0
    """The start of the job that is asked, as it counts itself (`RunRecord.attempt`); 0 where nobody knows."""
    v: int = VERSION


def encode(request: StopRequest) -> bytes:
    """The request as one JSON object without a newline."""
    return msgspec.json.encode(request)


def decode(value: bytes) -> StopRequest:
    """The request in a message value or control file. Unknown fields are ignored.

    Raises ControlError; never anything else, whatever the bytes.
    """
    if len(value) > MAX_REQUEST_BYTES:
        raise ControlError(f"{len(value)} bytes, the limit is {MAX_REQUEST_BYTES}")
    try:
        request = msgspec.json.decode(value, type=StopRequest)
    except (ValueError, RecursionError, OverflowError) as error:  # msgspec's errors are ValueErrors
        raise ControlError(str(error)) from None
    if request.v != VERSION:
        raise ControlError(f"v is {request.v}, this reader knows {VERSION}")
    if request.action not in ACTIONS:
        raise ControlError(f"action is {request.action!r:.40}, expected {' or '.join(ACTIONS)}")
    if not request.run or not request.id:
        raise ControlError("run and id must not be empty")
    return request


def meant_for(request: StopRequest, attempt: int) -> bool:
    """Whether a job that calls itself this attempt is asked, and not an earlier or later start of it."""
    return request.attempt in (0, attempt)


def expired(request: StopRequest, now: float) -> bool:
    """Whether the request is void at `now`; one whose expiry is not a number always is."""
    return not now < request.expires_at
