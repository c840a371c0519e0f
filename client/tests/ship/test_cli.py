"""The command `tocsin-ship`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tocsin import wire
from tocsin.formats import FORMATS
from tocsin.ship import cli
from tocsin.wire import Record, RunRecord, StepRecord


class Result:
    """What a run of the command did."""

    def __init__(self, status: int, said: list[str]) -> None:
        self.status, self.said = status, said


def run(*argv: str | Path, environ: Mapping[str, str] | None = None, stop: threading.Event | None = None) -> Result:
    said: list[str] = []
    status = cli.run(
        [str(argument) for argument in argv],
        environ=environ or {},
        say=said.append,
        clock=lambda: 1790000000.0,
        stop=stop or threading.Event(),
    )
    return Result(status, said)


def spooled(folder: Path) -> list[Record]:
    return [
        wire.decode(line).record for path in sorted((folder / "records").iterdir()) for line in path.read_bytes().splitlines()
    ]


def log(path: Path, *steps: int) -> Path:
    path.write_text("".join(json.dumps({"step": step, "data": {"actor/lr": 1.0}}) + "\n" for step in steps))
    return path


def test_once_with_everything(tmp_path: Path) -> None:
    path, spool, state = log(tmp_path / "a.jsonl", 1, 2), tmp_path / "spool", tmp_path / "state"
    result = run(
        path, "--once", "--spool", spool, "--state", state, "--run", "grpo-7b", "--names", "mine",
        "--label", "team=reasoning", "--label", "note=a=b", "--config", "group_size=16", "--config", "advantage=group_std",
    )  # fmt: skip
    assert result.status == 0
    assert result.said == [f"sending to spool:{spool}", "sent 2 steps and 1 run and end records"]
    first, second, third = spooled(spool)
    assert isinstance(first, RunRecord)
    assert (first.run, first.time) == ("grpo-7b", 1790000000.0)
    assert first.labels == {"framework": "verl", "team": "reasoning", "note": "a=b"}
    assert first.config == {"group_size": 16, "advantage": "group_std"}
    assert isinstance(second, StepRecord)
    assert second.names == "mine"
    assert isinstance(third, StepRecord)
    assert state.exists()
    assert run(path, "--once", "--spool", spool, "--state", state, "--run", "grpo-7b", "--quiet").said == []
    assert len(spooled(spool)) == 3


def test_several_logs_share_a_state_file(tmp_path: Path) -> None:
    paths = [log(tmp_path / f"{name}.jsonl", 1) for name in ("a", "b")]
    spool, state = tmp_path / "spool", tmp_path / "state"
    assert run(*paths, "--once", "--spool", spool, "--state", state).status == 0
    assert {record.run for record in spooled(spool)} == {"a", "b"}
    assert set(json.loads(state.read_bytes())["logs"]) == {str(path) for path in paths}
    assert run(*paths, "--once", "--spool", spool, "--state", state).said[-1] == "sent 0 steps and 0 run and end records"


def test_a_stop_is_clean_and_keeps_the_place(tmp_path: Path) -> None:
    path, spool = log(tmp_path / "a.jsonl", 1), tmp_path / "spool"

    class AfterOneLook(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == 0.5
            self.set()
            return True

    assert run(path, "--spool", spool, "--poll", "0.5", stop=AfterOneLook()).status == 0
    assert len(spooled(spool)) == 2
    assert (tmp_path / ".a.jsonl.tocsin-ship.json").exists()


def test_unreadable_places_are_no_failure_but_told(tmp_path: Path) -> None:
    path = log(tmp_path / "a.jsonl", 1)
    path.write_text(path.read_text() + "{nonsense}\n")
    result = run(path, "--once", "--spool", tmp_path / "spool")
    assert result.status == 0
    assert result.said[-1] == "sent 1 steps and 1 run and end records; 1 unreadable places"


@pytest.mark.parametrize("content", [None, "nothing to see\n"])
def test_a_log_that_cannot_be_read_is_status_1(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "a.log"
    if content is not None:
        path.write_text(content)
    result = run(path, "--once", "--spool", tmp_path / "spool")
    assert result.status == 1
    assert str(path) in result.said[1]


def test_a_follower_whose_logs_have_all_failed_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\x1f\x8b")
    assert run(path, "--spool", tmp_path / "spool").status == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: PATH"),
        (["a", "b", "--run", "x"], "--run names one run"),
        (["a", "--label", "team"], "'team': expected KEY=VALUE"),
        (["a", "--config", "=3"], "'=3': expected KEY=VALUE"),
        (["a", "--kafka", "h:1", "--spool", "d"], "not allowed with argument"),
        (["a", "--from-start", "--from-end"], "not allowed with argument"),
        (["a", "--poll", "0"], "'0': expected seconds"),
        (["a", "--poll", "soon"], "'soon': expected seconds"),
        (["a", "--format", "toml"], "invalid choice: 'toml'"),
        (["a", "--kafka", ","], "expected kafka://host:port"),
        (["a", "--kafka", "h:1", "--kafka-settings", "/nonexistent"], "No such file"),
        (["x/a.log", "y/a.log"], "two logs would be the run 'a'"),
    ],
)
def test_a_wrong_command_line_is_status_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run(*argv)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_where_records_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def to(argv: list[str], **environ: str) -> str:
        return cli.destination(cli.parser().parse_args(["log", *argv]), environ)

    assert to(["--kafka", "a:1,b:2"]) == "kafka://a:1,b:2/tocsin.records"
    assert to(["--kafka", "a:1", "--topic", "t"]) == "kafka://a:1/t"
    assert to(["--spool", "here"], TOCSIN_KAFKA="a:1") == f"spool:{tmp_path / 'here'}"
    assert to([], TOCSIN_KAFKA="a:1", TOCSIN_TOPIC="t") == "kafka://a:1/t"
    assert to([], TOCSIN_SPOOL="/x") == "spool:/x"
    assert to([]) == f"spool:{tmp_path / 'tocsin-spool'}"


def test_a_settings_file_that_is_no_object_does_not_show_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "kafka.json"
    settings.write_text('{"sasl_plain_password": "hunter2"')
    with pytest.raises(SystemExit):
        run("a", "--kafka", "h:1", "--kafka-settings", settings)
    said = capsys.readouterr().err
    assert "is no JSON object" in said
    assert "hunter2" not in said


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run("--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in FORMATS)
    assert text.count("      tocsin-ship ") == 7
    assert "exit status: 0" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_a_real_process_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    path, spool = log(tmp_path / "a.jsonl", 1, 2), tmp_path / "spool"
    process = subprocess.Popen(
        [sys.executable, "-m", "tocsin.ship.cli", str(path), "--spool", str(spool), "--poll", "60"],
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"tocsin-ship: sending to spool:{spool}\n"
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == 0
    assert rest.endswith(" run and end records\n")
