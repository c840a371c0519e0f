"""The rules of the house that no other tool enforces: what ships, and what may not stand in the repository."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"collector", "rules", "alerts", "grafana_dashboards", "service"}


def tracked() -> list[Path]:
    """Files of the repository (git's list, or every file of an unpacked archive)."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def build_wheel(project: Path, folder: Path) -> zipfile.ZipFile:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(project)],
        check=True,
        capture_output=True,
        env={**os.environ, "TOCSIN_COMPILE": "0"},
    )
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel)


def test_the_server_wheel_holds_exactly_its_packages(tmp_path: Path) -> None:
    with build_wheel(ROOT, tmp_path) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names if not re.search(r"^[^/]+\.(dist-info|data)/", name)} == PACKAGES
    assert not [name for name in names if name.startswith(("tests/", "client/"))]
    for data in (
        "collector/data/aliases.yaml",
        "rules/grammar.lark",
        "rules/packs/1-probability-consistency.yaml",
        "grafana_dashboards/generated/tocsin-run.json",
    ):
        assert data in names, "data files travel with their package"


def test_the_client_wheel_holds_tocsin_alone(tmp_path: Path) -> None:
    with build_wheel(ROOT / "client", tmp_path) as wheel:
        names = wheel.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tocsin"}


def test_no_page_installs_us_by_name() -> None:
    """Whoever looks our names up in a registry gets what a stranger put there."""
    pages = [path for path in tracked() if path.suffix == ".md" or path.parent.name == "deploy"]
    commands = [
        line for path in pages for line in re.findall(r"^ *(?:\S*/)?pip install .*$", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert len(commands) >= 3
    by_name = re.compile(r"(?<![\w./*-])tocsin(-server)?(?=$|[ \[=<>'\"])")
    assert by_name.search("pip install -U tocsin") and by_name.search("pip install 'tocsin-server[x]'")
    assert not by_name.search("pip install dist/tocsin-*.whl")
    assert [line for line in commands if by_name.search(line.partition("#")[0])] == []


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml", "client/pyproject.toml", "Makefile", ".ci/run"])
def test_no_download_address_in_what_describes_dependencies(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not re.search(r"https?://|index-url|find-links", text)


def test_every_dependency_is_pinned() -> None:
    pins = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line
    }
    import tomllib

    for project in ("pyproject.toml", "client/pyproject.toml"):
        table = tomllib.loads((ROOT / project).read_text(encoding="utf-8"))["project"]
        wanted = [
            *table["dependencies"],
            *(spec for extra in table.get("optional-dependencies", {}).values() for spec in extra),
        ]
        names = {re.split(r"[\[<>=!~ ]", spec)[0].lower().replace("_", "-") for spec in wanted} - {"tocsin"}
        assert names <= pins, f"{project}: not pinned in constraints.txt: {sorted(names - pins)}"


def test_no_lock_files_and_no_public_runs() -> None:
    names = [path.name for path in tracked()]
    assert not {"uv.lock", "poetry.lock", "Pipfile.lock", "package-lock.json"} & set(names)
    assert not [path for path in tracked() if path.name.startswith(("nips-", "ag-", "unsloth-", "tinyzero-"))]


def test_no_path_of_a_machine() -> None:
    bad = []
    for path in tracked():
        if path.suffix in {".gz", ".png", ".svg", ".woff2"} or path == Path(__file__):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if re.search(r"(?<![\w.])/(root|home/\w+|work/(main|shared))/", text):
            bad.append(str(path.relative_to(ROOT)))
    assert bad == []


def test_every_package_says_what_it_is() -> None:
    for package in sorted(PACKAGES):
        first = (ROOT / package / "__init__.py").read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith('"""') and len(first) > 20
    assert "Decides" in (ROOT / "rules/__init__.py").read_text(encoding="utf-8")
    assert "Delivers" in (ROOT / "alerts/__init__.py").read_text(encoding="utf-8")


AGAINST_THE_CLOCK = {
    # what a test must not do: (such a line, what to do instead, where it is meant)
    r"httpx\.(Client|get|post|put|patch|delete|request|stream)\(": (
        "httpx.Client(trust_env=False)",
        "http_client of tests/kit/asking.py: httpx gives up after 5 s",
        {"tests/kit/asking.py"},
    ),
    r"consumer_timeout_ms": (
        "KafkaConsumer(topic, consumer_timeout_ms=3000)",
        "Broker.read: nothing for a while is not the end of a topic",
        set[str](),
    ),
    r"\bsleep\(": (
        "time.sleep(0.5)",
        "until of tests/kit/services.py: wait for what is to happen",
        {
            "tests/kit/services.py",  # where one waits
            "tests/kit/steady.py",
            "tests/kit/stopping_job.py",  # a job that takes its time
            "tests/end_to_end/test_kafka_pipeline.py",  # dies at moments that are drawn
        },
    ),
}


@pytest.mark.parametrize("pattern", AGAINST_THE_CLOCK)
def test_no_test_depends_on_the_speed_of_the_machine(pattern: str) -> None:
    line, instead, meant = AGAINST_THE_CLOCK[pattern]
    assert re.search(pattern, line)
    found = set()
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if name.startswith(("tests/", "client/tests/")) and path.suffix == ".py" and path != Path(__file__):
            found |= {name} if re.search(pattern, path.read_text(encoding="utf-8")) else set()
    assert found == meant, instead


@given(st.none())
def test_no_example_is_measured_by_the_clock(nothing: None) -> None:
    assert settings.default is not None and settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check


PRODUCT = [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in {*PACKAGES, "client"}]
BROAD = {"Exception", "BaseException"}


def swallowed(text: str) -> list[int]:
    """Lines at which any exception is caught and dropped, or some exceptions are and nobody says why."""
    lines = text.splitlines()
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            kinds = (
                {"Exception"} if node.type is None else {each.id for each in ast.walk(node.type) if isinstance(each, ast.Name)}
            )
            empty = all(isinstance(each, ast.Pass | ast.Continue | ast.Break) for each in node.body)
            if empty and (kinds & BROAD or (isinstance(node.body[0], ast.Pass) and "#" not in lines[node.body[0].lineno - 1])):
                found.append(node.lineno)
        elif isinstance(node, ast.With):
            for item in node.items:
                if ast.unparse(item.context_expr).startswith(("contextlib.suppress", "suppress")):
                    kinds = {each.id for each in ast.walk(item.context_expr) if isinstance(each, ast.Name)}
                    if kinds & BROAD or "#" not in lines[node.lineno - 1]:
                        found.append(node.lineno)
    return found


def test_no_exception_is_dropped_without_a_reason() -> None:
    product = [path for path in PRODUCT if "tests" not in path.parts]
    assert len(product) > 300
    found = {f"{path.relative_to(ROOT)}:{line}" for path in product for line in swallowed(path.read_text(encoding="utf-8"))}
    assert found == set()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("try:\n    f()\nexcept Exception:\n    pass  # it may\n", [3]),
        ("try:\n    f()\nexcept:\n    pass\n", [3]),
        ("for x in y:\n    try:\n        f()\n    except (OSError, Exception):\n        continue\n", [4]),
        ("try:\n    f()\nexcept OSError:\n    pass\n", [3]),
        ("try:\n    f()\nexcept OSError:\n    pass  # it is gone\n", []),
        ("try:\n    f()\nexcept Exception:\n    log.exception('f')\n", []),
        ("with contextlib.suppress(OSError):\n    f()\n", [1]),
        ("with contextlib.suppress(OSError):  # it is gone\n    f()\n", []),
        ("with contextlib.suppress(Exception):  # whatever\n    f()\n", [1]),
    ],
)
def test_what_counts_as_dropped(text: str, lines: list[int]) -> None:
    assert swallowed(text) == lines
