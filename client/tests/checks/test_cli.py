"""The command `tocsin-check`."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tocsin.checks import cli
from tocsin.checks.commands import COMMANDS


class Result(NamedTuple):
    """What a run of the command did."""

    status: int
    out: str
    err: str


def command(*argv: str | Path) -> Result:
    """As a user runs it: another process."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tocsin.checks.cli", *map(str, argv)], capture_output=True, text=True, timeout=300
    )
    return Result(done.returncode, done.stdout, done.stderr)


def run(*argv: str | Path) -> Result:
    """The same in this process."""
    out: list[str] = []
    err: list[str] = []
    status = cli.run([str(argument) for argument in argv], out=out.append, err=err.append)
    return Result(status, "\n".join(out), "\n".join(err))


@pytest.fixture
def logprobs(tmp_path: Path) -> Path:
    """a.npz, b.npz: the trainer twice; c.npz: an engine that agrees; shifted.npz: one that does not."""
    rng = np.random.default_rng(0)
    a = -rng.exponential(1.0, (8, 50)).astype(np.float32)
    mask = np.ones((8, 50))
    mask[:, :5] = 0
    np.savez(tmp_path / "a.npz", logprobs=a, mask=mask)
    np.savez(tmp_path / "b.npz", logprobs=a)
    np.savez(tmp_path / "c.npz", logprobs=a - np.float32(1e-5) * rng.normal(size=a.shape).astype(np.float32))
    np.savez(tmp_path / "shifted.npz", logprobs=np.roll(a, 1, axis=1))
    return tmp_path


def test_consistency_of_two_files(logprobs: Path) -> None:
    result = command("consistency", logprobs / "a.npz", logprobs / "c.npz", "--repeat", logprobs / "b.npz")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("consistency: passed\n")
    assert "A=B" in result.out


def test_a_failed_check_is_status_1(logprobs: Path) -> None:
    result = command("consistency", logprobs / "a.npz", logprobs / "shifted.npz")
    assert (result.status, result.err) == (1, "")
    assert result.out.startswith("consistency: FAILED\n")
    assert "probable cause: C stands 1 position too late" in result.out


def test_json_for_machines(logprobs: Path) -> None:
    result = command("consistency", logprobs / "a.npz", logprobs / "shifted.npz", "--json")
    assert result.status == 1
    report = json.loads(result.out)
    assert report["passed"] is False
    assert report["numbers"]["A=C.tokens"] == 8 * 45
    assert [hint["cause"] for hint in report["hints"]] == ["shift"]


def test_limits_of_the_command_line(logprobs: Path) -> None:
    files = [logprobs / "a.npz", logprobs / "shifted.npz"]
    lenient = ["--clip", "0.999999", "1e9", "--healthy", "5", "--stop", "9", "--worst", "1"]
    assert run("consistency", *files, *lenient).status == 0
    assert run("consistency", *files, "--clipped", "1", "--stop", "9").status == 0


def line(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))
    return path


def test_a_file_that_is_wrong_is_status_2_and_one_line(tmp_path: Path) -> None:
    path = line(tmp_path / "x.jsonl", {"train": [-1.0], "rollout": [-1.0]}, {"train": [-1.0], "rollout": [-1.0, -2.0]})
    result = command("consistency", path)
    assert (result.status, result.out) == (2, "")
    assert result.err == f"tocsin-check: {path}, line 2: 2 values in rollout, but 1 in train\n"


def test_a_check_that_refuses_its_input_is_status_2(logprobs: Path) -> None:
    result = run("consistency", logprobs / "a.npz", logprobs / "c.npz", "--clip", "2", "1")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("clip: expected")


@pytest.mark.parametrize(
    "argv",
    [[], ["nothing"], ["consistency"], ["consistency", "a", "--clip", "x", "y"], ["accumulation", "a", "b", "--steps", "0"]],
)
def test_a_wrong_command_line_is_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert "usage: tocsin-check" in capsys.readouterr().err


def test_accumulation(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    gradients = {"layer.weight": rng.normal(size=(3, 4)), "layer.bias": rng.normal(size=3)}
    np.savez(tmp_path / "one.npz", **gradients)  # type: ignore[arg-type]  # numpy's stubs take a keyword for allow_pickle
    np.savez(tmp_path / "many.npz", **{name: 8 * gradient for name, gradient in gradients.items()})  # type: ignore[arg-type]  # as above
    files = [tmp_path / "one.npz", tmp_path / "many.npz"]
    result = command("accumulation", *files, "--steps", "8", "--world-size", "2")
    assert result.status == 1
    assert "which is the 8 accumulation steps" in " ".join(result.out.split())
    assert run("accumulation", files[0], files[0]).status == 0
    assert json.loads(run("accumulation", *files, "--json").out)["numbers"]["factor"] == 8
    assert run("accumulation", line(tmp_path / "x.jsonl", {}), files[0]).err.endswith(
        "write numpy.savez(file, **{name: array})"
    )


SAMPLE = {
    "tokens": ["q", "a", "</s>", "<pad>"],
    "sources": ["prompt", "policy", "policy", "pad"],
    "attention_mask": [1, 1, 1, 0],
    "loss_mask": [0, 1, 1, 0],
    "reward": [0, 0, 1, None],
}


def test_masks(tmp_path: Path) -> None:
    wrong = SAMPLE | {"loss_mask": [1, 1, 1, 0], "id": "the second"}
    path = line(tmp_path / "samples.jsonl", SAMPLE, wrong, SAMPLE | {"excluded": True, "loss_mask": [0] * 4})
    result = command("mask", path)
    assert result.status == 1
    assert "mask the second: FAILED\n  fails: 1 prompt token in the loss: position 0\n" in result.out
    assert "mask (line 1)" not in result.out
    assert result.out.endswith("2 of 3 samples passed\n")
    everything = run("mask", path, "--all")
    assert "mask (line 1): passed" in everything.out
    assert everything.out.count("token by token") == 3
    assert run("mask", path, "--all", "--tables", "1").out.count("token by token") == 1
    report = json.loads(run("mask", path, "--json").out)
    assert [sample["passed"] for sample in report["samples"]] == [True, False, True]


def test_masks_of_ids(tmp_path: Path) -> None:
    sample = {key: value for key, value in SAMPLE.items() if key != "tokens"} | {
        "token_ids": [5, 6, 2, 0],
        "loss_mask": [0, 1, 0, 0],
    }
    path = line(tmp_path / "samples.jsonl", sample)
    assert "1 end-of-turn token left out of the loss: position 2" in run("mask", path, "--eos", "2").out
    assert "1 policy token left out of the loss" in run("mask", path).out
    steps = line(tmp_path / "steps.jsonl", SAMPLE | {"reward": [0, 1, 1, 0]})
    assert (run("mask", steps).status, run("mask", steps, "--process-rewards").status) == (1, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": None}, "line 1: no tokens: expected tokens or token_ids"),
        ({"loss_mask": 1}, "line 1: loss_mask: expected a list"),
        ({"loss_mask": [1]}, "line 1: loss: shape (1,) for 4 tokens"),
        ({"sources": ["x"] * 4}, "line 1: sources: position 0 is 'x'"),
        ({"completion_tokens": -1}, "line 1: completion_tokens: expected a whole number, got -1"),
        ({"completion_tokens": True}, "line 1: completion_tokens: expected a whole number, got True"),
        ({"excluded": 1}, "line 1: excluded: expected true or false, got 1"),
    ],
)
def test_a_sample_that_is_wrong(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    result = run("mask", line(tmp_path / "samples.jsonl", SAMPLE | change))
    assert result.status == 2
    assert message in result.err
    assert result.err.count("\n") == 0


def test_no_samples(tmp_path: Path) -> None:
    assert run("mask", line(tmp_path / "samples.jsonl")).err.endswith("samples.jsonl: holds no samples")


def test_weights_and_digests(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    state = {f"module.layer{number}.weight": rng.normal(size=(4, 4)).astype(np.float32) for number in range(3)}
    np.savez(tmp_path / "trainer.npz", **state)  # type: ignore[arg-type]  # numpy's stubs take a keyword for allow_pickle
    engine = {name.removeprefix("module."): tensor.astype(np.float16).astype(np.float32) for name, tensor in state.items()}
    np.savez(tmp_path / "engine.npz", **engine)  # type: ignore[arg-type]  # as above
    trainer, other = tmp_path / "trainer.npz", tmp_path / "engine.npz"
    failed = command("weights", trainer, other, "--rename", "module.=")
    assert failed.status == 1
    assert "compare with as_type='float16'" in " ".join(failed.out.split())
    narrow = ["--rename", "module.=", "--as-type", "float16"]
    assert run("weights", trainer, other, *narrow).status == 0
    for name, argv in (("trainer.json", [trainer, "--as-type", "float16"]), ("engine.json", [other])):
        (tmp_path / name).write_text(run("digests", *argv).out)
    assert run("weights", tmp_path / "trainer.json", tmp_path / "engine.json", "--rename", "module.=").status == 0
    assert run("weights", tmp_path / "trainer.json", other, *narrow).status == 0
    assert json.loads(run("digests", other, "--ignore", "layer0.*", "--ignore", "layer2.*").out).keys() == {"layer1.weight"}
    part = json.loads((tmp_path / "engine.json").read_text())
    del part["layer1.weight"]
    (tmp_path / "part.json").write_text(json.dumps(part))
    report = json.loads(run("weights", trainer, tmp_path / "part.json", *narrow, "--json").out)
    assert report["names"] == {"missing": ["layer1.weight"]}
    assert run("weights", trainer, tmp_path / "part.json", *narrow, "--ignore", "layer1.*").status == 0


def test_digests_that_are_none(tmp_path: Path) -> None:
    state = line(tmp_path / "x.json", {"a": "something"})
    assert run("weights", state, state).err == "a: 'something' is no digest of tocsin.checks.digests"
    assert run("weights", state, state, "--rename", "=x").err == "--rename '=x': expected OLD=NEW"
    (tmp_path / "y.json").write_text("[]")
    assert run("weights", tmp_path / "y.json", state).err.endswith("y.json: a JSON list instead of an object")
    assert run("weights", tmp_path / "z.json", state).err.endswith("z.json: No such file or directory")


def test_a_reader_that_has_seen_enough_is_no_traceback(logprobs: Path) -> None:
    argv = [sys.executable, "-m", "tocsin.checks.cli", "consistency", str(logprobs / "a.npz"), str(logprobs / "c.npz")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(300) == cli.FAILED


def test_without_numpy_the_command_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from tocsin.checks import cli\n"
        "status = cli.main(['digests', 'x.npz'])\n"
        "try:\n    from tocsin.checks import consistency\n"
        "except ModuleNotFoundError as error:\n    print(status, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stderr == "tocsin-check: numpy is not installed: pip install tocsin[batch]\n"
    assert done.stdout == "2 tocsin.checks needs numpy: pip install tocsin[batch]\n"


def test_torch_is_not_imported() -> None:
    code = "import sys, tocsin.checks, tocsin.checks.commands; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "False\n"


def help_of(*check: str) -> str:
    """What `--help` prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        cli.main([*check, "--help"])
    return text.getvalue()


def all_help() -> str:
    """The help of the command and of each check, and the page of the documentation."""
    page = Path(__file__).parents[3] / "docs" / "checks.md"
    return "\n".join([help_of(), *map(help_of, COMMANDS), page.read_text(encoding="utf-8")])


@pytest.mark.parametrize("example", sorted(set(re.findall(r"^ *(tocsin-check \w+ .*)$", all_help(), re.MULTILINE))))
def test_every_example_is_a_command(example: str) -> None:
    argv = shlex.split(example.split(" > ")[0])[1:]
    assert cli.parser().parse_args(argv).check == argv[0]


def test_the_help_teaches() -> None:
    text = command("--help").out
    assert text.count("      tocsin-check ") == 6
    assert "exit status: 0 passed; 1 a check failed; 2" in text
    assert max(map(len, text.splitlines())) < 130
