"""The two forms of the program: the source itself, and the wheel whose hot modules are compiled.

The suite runs on either (`make compiled`, PYTHONPATH). TOCSIN_FORM says on which one it is meant to run, so that a run on the
compiled form cannot fall back to the source unseen.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from collector.form import COMPILED, PURE, form
from tests.kit import recorded

ROOT = Path(__file__).resolve().parents[1]


def listed() -> list[str]:
    """The modules that hatch_build.py compiles."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    modules: list[str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]
    return modules


def test_this_is_the_form_that_was_asked_for() -> None:
    assert form() == os.environ.get("TOCSIN_FORM", PURE)


@pytest.mark.parametrize("name", listed())
def test_every_listed_module_is_there_in_this_form(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    assert str(module.__file__).endswith(".py") is (form() == PURE)


@pytest.mark.parametrize("name", listed())
def test_no_listed_module_defines_what_mypyc_changes(name: str) -> None:
    """It drops the options of a msgspec Struct (frozen, kw_only), and keeps no __slots__ to be read."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"msgspec\.Struct\b|\(Struct\b|self\.__slots__|self\.__struct_fields__|vars\(self", text)


def test_nothing_compiled_lies_in_the_work_tree() -> None:
    """A module that was compiled beside its source would hide every edit."""
    assert [path for top in ("collector", "rules", "alerts", "service") for path in (ROOT / top).rglob("*.so")] == []


def wheel(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_without_a_compiler_the_wheel_is_pure_and_says_so(tmp_path: Path) -> None:
    done = wheel(tmp_path, CC="no-such-compiler", TOCSIN_COMPILE="")
    assert done.returncode == 0, done.stdout
    assert "this wheel is pure Python" in done.stdout and "there is no C compiler" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["tocsin_server-0.1.0-py3-none-any.whl"]


def test_a_compiled_wheel_or_none(tmp_path: Path) -> None:
    done = wheel(tmp_path, CC="no-such-compiler", TOCSIN_COMPILE="1")
    assert done.returncode != 0 and "there is no C compiler" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_both_forms_say_the_same_of_recorded_runs() -> None:
    """Byte by byte: every event with all its numbers."""
    if form() != COMPILED:
        pytest.skip("compares with the compiled form: make compiled, then TOCSIN_FORM=compiled and its PYTHONPATH")
    runs = recorded.need() / "tiny"
    here = os.environ["PYTHONPATH"].split(os.pathsep)
    source = os.pathsep.join([str(ROOT), str(ROOT / "client" / "src")])
    compiled = os.pathsep.join(str(Path(part).resolve()) for part in here)
    told = {name: replayed(runs, path) for name, path in ((PURE, source), (COMPILED, compiled))}
    assert told[PURE].count(b"\n") > 50
    assert told[PURE] == told[COMPILED]


def replayed(runs: Path, path: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-P", "-m", "service.cli", "replay", str(runs), "--json"],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
        cwd=runs,
    ).stdout
