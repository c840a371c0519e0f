"""A follower of event files that is killed anywhere sends each row, and what one pass over the finished files gives."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import events
from tests.kit.followed_events import Ship, rows
from tocsin import wire
from tocsin.formats import read_records
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import Record, StepRecord

SLIME = [
    events.whole(
        [(10.0 * number + 5, number, {"train/pg_loss": float(number), "train/x": math.nan}) for number in range(5)]
        + [(300.0 + number, number, {"train/pg_loss": -1.0}) for number in (5, 6)],
        1.0,
    ),
    events.whole([(10.0 * number + 1, number, {"rollout/raw_reward": float(number)}) for number in range(6)], 1.5),
]


RESTARTED = [
    events.whole(rows(1, 2, 3, 4), 1.0)[:-5],
    events.whole(rows(3, 4, 5, base=300.0, value=0.25), 200.0),
]


WORK = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 1), st.integers(1, 150)),
        st.tuples(st.just("look"), st.integers(0, 1), st.sampled_from([0, 0, 1, 7])),
        st.tuples(st.just("kill"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


class Confirming(MemoryTransport):
    """Takes everything, confirms when told to."""

    confirms = True

    def flush(self, timeout: float) -> bool:
        return self.confirms


def _followed(
    contents: list[bytes], work: list[tuple[str, int, int]], grow: Callable[[int], int]
) -> tuple[list[Record], list[Record]]:
    """(what was sent, what one pass over the finished files gives). `grow` says how long a look may last."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "tb"
        folder.mkdir()
        files = [folder / f"events.out.tfevents.{index}" for index in range(len(contents))]
        for file, content in zip(files, contents, strict=True):
            file.write_bytes(content[:40])
        written = [40] * len(contents)
        ship = Ship(folder, Path(name) / "state")
        transport = ship.transport = Confirming()
        ship.start()
        rest = [("write", index, len(content)) for index, content in enumerate(contents)]
        for what, which, amount in [*work, *rest, ("kill", 0, 0), ("look", 1, 0)]:
            if what == "write":
                with files[which].open("ab") as growing:
                    growing.write(contents[which][written[which] : written[which] + amount])
                written[which] = min(written[which] + amount, len(contents[which]))
            elif what == "look":
                transport.confirms = bool(which)
                ship.now += grow(amount)
                ship.shipper.poll_once()
            else:
                ship.start()
        transport.confirms = True
        while ship.shipper.poll_once(last=True):
            pass
        ship.shipper.close()
        places = [place.record for place in read_records(folder, run="r") if place.record is not None]
        return transport.records, [wire.decode(wire.encode(record)).record for record in places]


def _told(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(repr(msgspec.structs.replace(record, time=0.0)) for record in records))


def _joined(records: list[Record]) -> dict[tuple[int, int], str]:
    """What the collector makes of them: one row per attempt and step."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for record in records:
        if isinstance(record, StepRecord):
            found.setdefault((record.attempt, record.step), {}).update(record.metrics)
    return {place: repr(sorted(metrics.items())) for place, metrics in sorted(found.items())}


@pytest.mark.parametrize("contents", [SLIME, RESTARTED], ids=["slime", "restarted"])
@settings(max_examples=60)
@given(work=WORK)
def test_killed_anywhere(contents: list[bytes], work: list[tuple[str, int, int]]) -> None:
    """While no grace runs out, the very same records; else the same rows, in more pieces."""
    sent, whole = _followed(contents, work, lambda seconds: 0)
    assert _told(sent) == _told(whole)


@settings(max_examples=60)
@given(work=WORK)
def test_killed_anywhere_while_graces_run_out(work: list[tuple[str, int, int]]) -> None:
    alone = [RESTARTED[0] + b"".join(events.events(rows(5, 6)))]
    sent, whole = _followed(
        alone, [(what, 0, amount) if what == "write" else (what, which, amount) for what, which, amount in work], int
    )
    assert _joined(sent) == _joined(whole)
