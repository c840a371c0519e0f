"""Following event files as they grow. Nothing here waits for a clock: the clock is a number."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import events
from tests.kit.followed_events import Ship, rows
from tocsin.formats import UnknownFormat
from tocsin.formats.event_paths import is_event_file
from tocsin.ship.bookmarks import beside
from tocsin.ship.tensorboard import GRACE_SECONDS, SEARCH_SECONDS
from tocsin.wire import Record, RunRecord, StepRecord

NAME = "events.out.tfevents.1.h.1.0"


@pytest.fixture
def ship(tmp_path: Path) -> Iterator[Ship]:
    made = Ship(tmp_path / "tb", tmp_path / "state")
    yield made
    made.shipper.close()


def steps(records: list[Record]) -> list[tuple[int, int, dict[str, float]]]:
    return [(record.attempt, record.step, record.metrics) for record in records if isinstance(record, StepRecord)]


def append(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)


VALUES = {"train/policy_loss": 0.5, "train/actor_lr": 1.0}


def test_a_folder_that_does_not_exist_yet_and_then_grows(ship: Ship) -> None:
    assert ship.poll() == []
    ship.path.mkdir()
    assert ship.poll() == []
    append(ship.path / NAME, events.begin(1.0))
    assert ship.poll() == []
    assert ship.follower.format == "tensorboard"
    append(ship.path / NAME, b"".join(events.events(rows(1, 2))))
    opening, first = ship.poll()
    assert isinstance(opening, RunRecord)
    assert opening.labels == {"framework": "openrlhf"}
    assert isinstance(first, StepRecord)
    assert (first.step, first.time, first.names) == (1, 101.0, "openrlhf")
    assert ship.said == []
    assert ship.follower.status() == f"tensorboard, {(ship.path / NAME).stat().st_size} bytes of 1 files"


def test_a_step_is_sent_when_its_grace_is_over(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1), 1.0))
    assert ship.poll() == []
    append(ship.path / NAME, events.scalar("train/timing/generation", 3.0, 1, 102.0))
    assert ship.poll(GRACE_SECONDS - 0.5) == []
    assert ship.poll(GRACE_SECONDS - 0.5) == []
    assert steps(ship.poll(0.5)) == [(1, 1, {**VALUES, "train/timing/generation": 3.0})]
    assert ship.poll(60.0) == []
    append(ship.path / NAME, events.scalar("eval/eval_gsm8k_pass1", 0.25, 1, 170.0))
    assert ship.poll() == []
    assert steps(ship.poll(GRACE_SECONDS)) == [(1, 1, {"eval/eval_gsm8k_pass1": 0.25})]


def test_values_of_another_clock_hold_no_step_back(ship: Ship) -> None:
    """NeMo RL looks at its machines every few seconds."""
    append(ship.path / NAME, events.whole([(101.0, 1, {"train/gen_kl_error": 0.5})], 1.0))
    assert ship.poll() == []
    for tick in range(int(GRACE_SECONDS) - 1):
        append(ship.path / NAME, events.scalar("ray/node.0.gpu.0.util", 1.0, tick, 102.0 + tick))
        assert ship.poll(1.0) == []
    append(ship.path / NAME, events.scalar("ray/node.0.gpu.0.util", 1.0, 99, 199.0))
    assert steps(ship.poll(1.0)) == [(1, 1, {"train/gen_kl_error": 0.5})]


def test_a_clock_that_is_set_back_holds_nothing_for_ever(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1), 1.0))
    assert ship.poll() == []
    assert steps(ship.poll(-3600.0)) == [(1, 1, VALUES)]


def test_half_an_event_waits_for_the_rest(ship: Ship) -> None:
    data = events.whole(rows(1, 2, 3), 1.0)
    for cut in range(1, len(data)):
        append(ship.path / NAME, data[cut - 1 : cut])
        ship.poll()
    append(ship.path / NAME, data[-1:])
    ship.poll()
    ship.poll(GRACE_SECONDS)
    assert steps(ship.transport.records) == [(1, number, VALUES) for number in (1, 2, 3)]
    assert ship.shipper.tally.unreadable == 0


def test_one_file_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / NAME
    ship = Ship(path, tmp_path / "state")
    assert ship.poll() == []
    path.touch()
    assert ship.poll() == []
    append(path, events.whole(rows(1, 2), 1.0))
    assert steps(ship.poll()) == [(1, 1, VALUES)]
    assert ship.start().poll() == []
    assert steps(ship.poll(GRACE_SECONDS)) == [(1, 2, VALUES)]


def test_the_kept_place_is_no_event_file(tmp_path: Path) -> None:
    """TensorBoard reads everything beside it that has `tfevents` in its name."""
    assert not is_event_file(beside(tmp_path / NAME).name)
    assert "tfevents" not in beside(tmp_path / NAME).name


def test_a_long_backlog_comes_in_portions(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(*range(3000)), 1.0))
    assert len(steps(ship.poll())) == 2999


def test_damage_is_told_and_the_rest_followed(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1), 1.0) + b"\x07" * 30)
    assert ship.poll() == []
    assert ship.shipper.tally.unreadable == 0
    append(ship.path / NAME, b"".join(events.events(rows(2, 3))))
    assert steps(ship.poll()) == [(1, 1, VALUES), (1, 2, VALUES)]
    assert len(ship.said) == 1
    assert ship.said[0].endswith("30 damaged bytes")


def test_a_restart_is_a_new_attempt(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1, 2, 3), 1.0) + events.events(rows(4))[0][:10])
    ship.poll(GRACE_SECONDS)
    append(ship.path / "events.out.tfevents.200", events.whole(rows(3, 4, 5, base=300.0, value=0.25), 200.0))
    ship.poll(SEARCH_SECONDS)
    ship.poll(GRACE_SECONDS)
    ship.poll(GRACE_SECONDS)
    found = [(attempt, step, metrics["train/policy_loss"]) for attempt, step, metrics in steps(ship.transport.records)]
    assert found == [(1, 1, 0.5), (1, 2, 0.5), (1, 3, 0.5), (2, 3, 0.25), (2, 4, 0.25), (2, 5, 0.25)]
    assert [record.attempt for record in ship.transport.records if isinstance(record, RunRecord)] == [1, 2]


def test_a_restart_while_nobody_looked(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1, 2, 3), 1.0))
    ship.poll(last=True)
    append(ship.path / NAME, b"".join(events.events(rows(4))))
    append(ship.path / "events.out.tfevents.200", events.whole(rows(4, 5, base=300.0), 200.0))
    assert [place[:2] for place in steps(ship.start().poll(last=True))] == [(1, 3), (1, 4), (2, 4), (2, 5)]


def test_an_event_waits_for_older_ones_of_another_writer(ship: Ship) -> None:
    """slime: training steps and rollouts are logged by two processes."""
    train, rollouts = ship.path / "events.out.tfevents.1.h.1.0", ship.path / "events.out.tfevents.1.h.2.0"
    for path in (train, rollouts):
        append(path, events.begin(1.0))
    append(rollouts, events.scalar("rollout/raw_reward", 0.5, 0, 10.0) + events.scalar("rollout/raw_reward", 0.75, 1, 30.0))
    append(train, events.scalar("train/pg_loss", 1.0, 0, 20.0))
    assert ship.poll() == []
    append(train, events.scalar("train/pg_loss", 2.0, 1, 40.0) + events.scalar("train/pg_loss", 3.0, 2, 60.0))
    assert ship.poll(1.0) == []
    assert steps(ship.poll(GRACE_SECONDS)) == [
        (1, 0, {"train/pg_loss": 1.0, "rollout/raw_reward": 0.5}),
        (1, 1, {"train/pg_loss": 2.0, "rollout/raw_reward": 0.75}),
    ]


def test_a_backlog_waits_for_nobody(ship: Ship) -> None:
    """What is older than a writer holds back is in no doubt, however much of it there is."""
    ship.now = 100_000.0
    append(ship.path / "events.out.tfevents.1.h.2.0", events.begin(1.0))
    append(ship.path / NAME, events.whole(rows(*range(3000)), 1.0))
    assert len(steps(ship.poll())) == 2999


def test_a_folder_per_start_that_appears_later(ship: Ship) -> None:
    append(ship.path / "exp_001" / "tensorboard" / NAME, events.whole(rows(1, 2), 1.0))
    ship.poll(GRACE_SECONDS)
    append(ship.path / "exp_002" / "tensorboard" / NAME, events.whole(rows(2, 3, base=300.0), 200.0))
    append(ship.path / "another" / NAME, events.whole(rows(50), 1.0))
    for _ in range(3):
        ship.poll(GRACE_SECONDS)
    assert [place[:2] for place in steps(ship.transport.records)] == [(1, 1), (1, 2), (2, 2), (2, 3)]


def test_several_runs_in_the_folder_end_it_with_their_names(tmp_path: Path) -> None:
    for name in ("grpo-a", "grpo-b"):
        append(tmp_path / "tb" / name / NAME, events.whole(rows(1), 1.0))
    ship = Ship(tmp_path / "tb", tmp_path / "state")
    ship.poll()
    assert ship.shipper.over
    assert "2 runs (grpo-a, grpo-b); name the folder of one" in ship.said[0]


def test_a_file_that_is_deleted_is_no_end(ship: Ship) -> None:
    first, second = ship.path / NAME, ship.path / "events.out.tfevents.200"
    append(first, events.whole(rows(1, 2), 1.0))
    ship.poll()
    ship.poll(GRACE_SECONDS)
    first.unlink()
    assert ship.poll(SEARCH_SECONDS) == []
    append(second, events.whole(rows(3, base=300.0), 200.0))
    assert ship.poll(SEARCH_SECONDS) == []
    assert steps(ship.poll(GRACE_SECONDS)) == [(1, 3, VALUES)]


def test_another_file_under_the_same_name_is_read_from_its_beginning(ship: Ship) -> None:
    path = ship.path / NAME
    append(path, events.whole(rows(*range(50, 60)), 1.0))
    ship.poll(GRACE_SECONDS)
    path.unlink()
    append(path, events.whole(rows(1, 2, base=900.0), 800.0))
    ship.poll(GRACE_SECONDS)
    ship.poll(GRACE_SECONDS)
    assert [place[:2] for place in steps(ship.transport.records)][-2:] == [(2, 1), (2, 2)]


def test_a_last_look_sends_what_is_not_complete_and_a_later_one_takes_it_whole(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1), 1.0) + events.events(rows(2))[0])
    assert steps(ship.poll(last=True)) == [(1, 1, VALUES), (1, 2, {"train/policy_loss": 0.5})]
    assert ship.poll(last=True) == []
    append(ship.path / NAME, events.events(rows(2))[1])
    assert steps(ship.start().poll(last=True)) == [(1, 2, VALUES)]


def test_a_last_look_at_nothing_says_so(ship: Ship) -> None:
    ship.path.mkdir()
    ship.poll(last=True)
    assert ship.shipper.tally.failed == 1


def test_from_the_end(tmp_path: Path) -> None:
    ship = Ship(tmp_path / "tb", tmp_path / "state", from_end=True)
    append(ship.path / NAME, events.whole(rows(*range(10)), 1.0) + events.events(rows(10))[0][:9])
    assert [record for record in ship.poll() if isinstance(record, StepRecord)] == []
    append(ship.path / NAME, events.events(rows(10))[0][9:] + events.events(rows(10))[1] + b"".join(events.events(rows(11))))
    assert [place[:2] for place in steps(ship.poll())] == [(1, 10)]


def test_from_the_end_of_a_folder_that_is_not_there_yet_is_all_of_it(tmp_path: Path) -> None:
    ship = Ship(tmp_path / "tb", tmp_path / "state", format="tensorboard", from_end=True)
    assert ship.poll() == []
    append(ship.path / NAME, events.whole(rows(1, 2), 1.0))
    assert [place[:2] for place in steps(ship.poll())] == [(1, 1)]


def test_a_file_that_cannot_be_read_is_told_once_and_the_others_are_followed(ship: Ship) -> None:
    spoilt = ship.path / "events.out.tfevents.0"
    append(spoilt, events.begin(0.5))
    append(ship.path / NAME, events.whole(rows(1, 2), 1.0))
    ship.poll()
    spoilt.unlink()
    spoilt.mkdir()  # root, who may run this test, may read every file, but no folder as one
    append(ship.path / NAME, b"".join(events.events(rows(3))))
    ship.poll(GRACE_SECONDS)
    ship.poll(GRACE_SECONDS)
    assert [place[:2] for place in steps(ship.transport.records)] == [(1, 1), (1, 2), (1, 3)]
    assert ship.said == [f"{ship.path}: {spoilt.name}: Is a directory; the other files are read"]


def test_a_trainers_output_folder_with_checkpoints_keeps_to_them(tmp_path: Path) -> None:
    ship = Ship(tmp_path / "output", tmp_path / "state")
    append(ship.path / "runs" / "Aug23_10-02-11_node1" / NAME, events.whole([(5.0, 1, {"train/loss": 0.5})], 1.0))
    append(
        ship.path / "checkpoint-10" / "trainer_state.json", json.dumps({"log_history": [{"loss": 1.0, "step": 10}]}).encode()
    )
    ship.poll()
    assert ship.follower.format == "trainer-state"


def test_event_files_once_followed_are_followed_on_though_a_checkpoint_came(tmp_path: Path) -> None:
    ship = Ship(tmp_path / "output", tmp_path / "state")
    log = ship.path / "runs" / "Aug23_10-02-11_node1" / NAME
    append(log, events.whole([(5.0, 1, {"train/loss": 0.5, "train/grad_norm": 1.0})], 1.0))
    opening, _ = ship.poll(), ship.poll(GRACE_SECONDS)
    append(
        ship.path / "checkpoint-10" / "trainer_state.json", json.dumps({"log_history": [{"loss": 1.0, "step": 10}]}).encode()
    )
    append(log, events.scalar("train/loss", 0.25, 2, 6.0))
    ship.start().poll()
    assert opening == []
    assert steps(ship.poll(GRACE_SECONDS)) == [(1, 2, {"train/loss": 0.25})]
    assert {record.names for record in ship.transport.records if isinstance(record, StepRecord)} == {"trl"}


def test_records_that_were_lost_are_read_again(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1, 2, 3), 1.0))
    assert len(ship.poll()) == 3
    append(ship.path / NAME, b"".join(events.events(rows(4))))
    batch = ship.follower.poll(False)
    assert [getattr(parsed.record, "step", None) for parsed in batch.parsed] == [3]
    ship.follower.rewind()
    assert ship.follower.poll(False).parsed == batch.parsed


def test_a_state_of_another_version_starts_over(ship: Ship) -> None:
    append(ship.path / NAME, events.whole(rows(1, 2), 1.0))
    ship.poll()
    stored = json.loads(ship.state.read_bytes())
    others: list[object] = [
        {},
        {"files": {NAME: ["x", 1, 2]}, "rows": {}},
        {"files": {}, "rows": {"log": {}}},
        {"files": [], "rows": None},
    ]
    for parser in others:
        stored["logs"]["log"]["parser"] = parser
        ship.state.write_text(json.dumps(stored))
        assert steps(ship.start().poll())[0] == (1, 1, VALUES)


def test_without_the_extra_the_log_ends_with_the_way_to_install_it(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise UnknownFormat("pip install 'tocsin[tensorboard]'")

    monkeypatch.setattr("tocsin.formats.event_folder.decoder", missing)
    append(ship.path / NAME, events.whole(rows(1), 1.0))
    ship.poll()
    assert ship.said == ["pip install 'tocsin[tensorboard]'"]
    assert ship.shipper.over
