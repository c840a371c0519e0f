"""Killed anywhere and started again: what was sent, repetitions aside, is what one undisturbed pass over the log gives."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import wire
from tocsin.formats import read_records
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.follow import Follower
from tocsin.ship.shipper import Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports.memory import MemoryTransport


def _console(steps: int, every: int) -> str:
    parts = ["***** Running training *****\n  0%|  | 0/9 [00:00<?, ?it/s]"]
    for step in range(1, steps + 1):
        parts.append(f"\r 5%|#  | {step}/9 [00:01<00:01]")
        if step % every == 0:
            row = f"{{'loss': 0.5, 'grad_norm': {step}.0, 'epoch': {step / 9:.3f}}}"
            parts.append(f"\r{' ' * 20}\r{row[:20]}\n{row[20:]}\n" if step == 4 else f"\r{' ' * 20}\r{row}\n")
    return "".join(parts)


def _screen(steps: int) -> str:
    """No wipes: rows are held until the bar is shown again."""
    rows = [f"{{'loss': 0.5, 'grad_norm': {step}.0, 'epoch': {step / 9:.3f}}}\n" for step in range(1, steps + 1)]
    return (
        " 0%|  | 0/9 [00:00<?, ?it/s]\n"
        + "".join(rows)
        + f" 50%|# | {steps}/9 [00:00<00:01]\nnoise\n"
        + rows[0].replace("0.111", "0.9")
    )


LOGS = {
    "canonical": "".join(f'{{"v":1,"kind":"step","run":"r","step":{step},"time":0}}\n' for step in (1, 2, 3, 9)) + "{bad\n",
    "verl-jsonl": "".join(f'{{"step": {step}, "data": {{"actor/lr": {step}}}}}\n' for step in (1, 2, 2, 3, 2, 3)) + "bad\n",
    "verl-console": "".join(f"noise\n(T pid=1) step:{step} - actor/lr:{step}\n" for step in (7, 8, 5, 6)),
    "flat-jsonl": "".join(
        f'{{"step": {step}, "time": 1790000000.{at}, "{key}": {at}}}\n'
        for at, (step, key) in enumerate(
            [
                (1, "progress/tokens"),
                (1, "optim/lr"),
                (2, "progress/tokens"),
                (1, "loss/mean"),
                (2, "optim/lr"),
                (2, "optim/lr"),
            ]
        )
    )
    + "bad\n",
    "openrlhf-console": "".join(f"noise\n(T pid=1) Global step {step}: {{'kl': {step}}}\n" for step in (7, 8, 5, 6)),
    "slime-console": "".join(
        f"perf {r}: {{'perf/rollout_time': {r}}}\nstep {2 * r}: {{'train/a': 1}}\nstep {2 * r + 1}: {{'train/a': 2}}\n"
        f"perf {r}: {{'perf/train_time': {r}}}\n"
        for r in (0, 1, 2, 1, 2)
    ),
    "areal-console": "".join(
        f"Epoch 1/9 Step 1/9 Train step {step}/9 done.\nStats (1/2):\n│ a │ {step} │\n╘═╛\nStats (2/2):\n│ b │ 1 │\n╘═╛\n"
        for step in (1, 2, 3, 2, 3)
    ),
    "roll-console": "".join(
        f'metrics_tag: {{"step": {step}, "metrics": {{"a": {value}}}}}\n'
        for step, value in ((0, 5), (1, 6), (2, 7), (0, 5), (1, 6), (2, 8), (3, 9))
    ),
    "csv": "step,actor_lr\n1,1\n2,2\n2\nstep,actor_lr,kl\n1,5,6\n2,7,8\n",
    "trl-console": "Unsloth: hello\n"
    + _console(9, 2)
    + "{'train_runtime': 5.0, 'epoch': 1.0}\n"
    + _console(7, 3)
    + "\n"
    + _screen(4),
}


ASYNC = "".join(
    f'{{"step": {step}, "data": {{"{key}": {at}}}}}\n'
    for at, (step, key) in enumerate(
        [
            (1, "timing_s/gen"),
            (1, "fully_async/a"),
            (1, "actor/lr"),
            (2, "actor/lr"),
            (2, "val/x"),
            (3, "a"),
            (2, "a"),
            (2, "b"),
        ]
    )
)


class Confirming(MemoryTransport):
    """Takes everything, confirms when told to."""

    confirms = True

    def flush(self, timeout: float) -> bool:
        return self.confirms


def timeless(record: wire.Record) -> bytes:
    return wire.encode(msgspec.structs.replace(record, time=0.0))


WORK = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 120)), st.tuples(st.just("look"), st.integers(0, 1)), st.just(("kill", 0))
)


@pytest.mark.parametrize("format", list(LOGS))
@given(st.lists(WORK, max_size=30))
def test_killed_anywhere(format: str, work: list[tuple[str, int]]) -> None:
    data = LOGS[format].encode()
    with tempfile.TemporaryDirectory() as folder:
        path, state = Path(folder) / "log", Path(folder) / "state"
        transport = Confirming()

        def start() -> Shipper:
            reading = Reading(to="x", run="r", bookmarks=Bookmarks(state), key="log", clock=lambda: 5.0)
            return Shipper([Log(Follower(path, format, reading), reading)], transport, lambda text: None)

        written = 0
        shipper = start()
        for what, amount in [*work, ("write", len(data)), ("kill", 0), ("look", 1)]:
            if what == "write":
                with path.open("ab") as file:
                    file.write(data[written : written + amount])
                written += amount
            elif what == "look":
                transport.confirms = bool(amount)
                shipper.poll_once()
            else:
                shipper.close()
                shipper = start()
        while shipper.poll_once(last=True):
            pass
        shipper.close()
        sent = list(dict.fromkeys(timeless(record) for record in transport.records))
        whole = [timeless(place.record) for place in read_records(path, format, run="r") if place.record is not None]
        assert sent == list(dict.fromkeys(whole))


def joined(records: Iterable[wire.Record]) -> dict[tuple[int, int], dict[str, object]]:
    """(attempt, step) -> its numbers, all rows together, as the collector joins them."""
    found: dict[tuple[int, int], dict[str, object]] = {}
    for record in records:
        if isinstance(record, wire.StepRecord):
            found.setdefault((record.attempt, record.step), {}).update(record.metrics)
    return found


@pytest.mark.parametrize("format", ["flat-jsonl", "slime-console", "verl-async"])
@given(st.lists(WORK, max_size=30))
def test_killed_anywhere_while_rows_are_joined(format: str, work: list[tuple[str, int]]) -> None:
    """Each look comes so late that rows that were held are sent: what is sent differs, what the collector has does not."""
    data = LOGS[format].encode() if format in LOGS else ASYNC.encode()
    chosen = format if format in LOGS else "verl-jsonl"
    with tempfile.TemporaryDirectory() as folder:
        path, state, now = Path(folder) / "log", Path(folder) / "state", [1790000000.0]
        transport = Confirming()

        def start() -> Shipper:
            reading = Reading(to="x", run="r", bookmarks=Bookmarks(state), key="log", clock=lambda: now[0])
            return Shipper([Log(Follower(path, chosen, reading), reading)], transport, lambda text: None)

        written = 0
        shipper = start()
        for what, amount in [*work, ("write", len(data)), ("kill", 0), ("look", 1)]:
            if what == "write":
                with path.open("ab") as file:
                    file.write(data[written : written + amount])
                written += amount
            elif what == "look":
                now[0] += 5.0
                transport.confirms = bool(amount)
                shipper.poll_once()
            else:
                shipper.close()
                shipper = start()
        while shipper.poll_once(last=True):
            pass
        shipper.close()
        whole = [place.record for place in read_records(path, chosen, run="r") if place.record is not None]
        assert joined(transport.records) == joined(whole)


@given(cut=st.integers(0, 300), more=st.integers(1, 6))
def test_truncated_at_any_point(cut: int, more: int) -> None:
    """Whatever a truncation leaves, the rows written after it arrive, whole, in a later attempt or as they were."""
    with tempfile.TemporaryDirectory() as folder:
        path, state = Path(folder) / "log", Path(folder) / "state"
        transport = Confirming()
        reading = Reading(to="x", run="r", bookmarks=Bookmarks(state), key="log", clock=lambda: 5.0)
        shipper = Shipper([Log(Follower(path, "verl-jsonl", reading), reading)], transport, lambda text: None)
        rows = [f'{{"step": {step}, "data": {{"actor/lr": {step}}}}}\n'.encode() for step in range(1, 9)]
        path.write_bytes(b"".join(rows))
        shipper.poll_once()
        with path.open("r+b") as file:
            file.truncate(cut)
        shipper.poll_once()
        with path.open("ab") as file:
            file.write(b"\n" + b"".join(rows[:more]))
        shipper.poll_once()
        shipper.close()
        truncated = cut < sum(map(len, rows))
        last = [record for record in transport.records if isinstance(record, wire.StepRecord)][-more:]
        assert [record.step for record in last] == list(range(1, more + 1))
        assert (last[-1].attempt > 1) is (truncated or more < 9)
