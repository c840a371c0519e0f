"""What pages and docstrings point at is there: files, headings, modules and names in them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("collector", "rules", "alerts", "grafana_dashboards", "service", "tests", "benchmarks")
SETTINGS = {"rules.dirs", "rules.watch", "rules.baselines", "rules.shipped"}
"""Keys of tocsin.yaml, which are written like names of modules."""
FILES = ("yaml", "md")
"""`alerts.yaml` is no module either."""


def tracked(*patterns: str) -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def headings(page: Path) -> set[str]:
    """The anchors of a page, as its readers' programs make them of the headings."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in found}


@pytest.mark.parametrize("page", [path.relative_to(ROOT).as_posix() for path in tracked("*.md")])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file if file else path
        assert there.exists(), f"{page} links to {target}"
        if anchor and there.suffix == ".md":
            assert anchor in headings(there), f"{page} links to {target}, and there is no such heading"


def dotted(text: str) -> Iterator[str]:
    """Names in backquotes that begin with one of our packages."""
    for name in re.findall(rf"`((?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+)`", text):
        if name not in SETTINGS and name.rpartition(".")[2] not in FILES:
            yield name


def resolves(name: str) -> bool:
    """Whether the longest beginning of a dotted name that is a module says the rest somewhere."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        stem = ROOT.joinpath(*parts[:length])
        for module in (stem.with_suffix(".py"), stem / "__init__.py"):
            if module.is_file():
                text = module.read_text(encoding="utf-8")
                return all(re.search(rf"\b{part}\b", text) for part in parts[length:])
    return False


def test_a_name_that_leads_nowhere_is_seen() -> None:
    assert [
        name for name in dotted("`rules.engine.Engine` `rules.engin` `rules.engine.Motor` `rules.dirs`") if not resolves(name)
    ] == [
        "rules.engin",
        "rules.engine.Motor",
    ]


def test_modules_that_text_names_are_there() -> None:
    lost = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked("*.py", "*.md")
        if path != Path(__file__).resolve()
        for name in dotted(path.read_text(encoding="utf-8"))
        if not resolves(name)
    ]
    assert not lost, "\n".join(lost)


def test_paths_that_pages_name_are_there() -> None:
    """Files and folders of the server and of its pages, written from the root."""
    lost = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in tracked("*.md")
        for path in re.findall(rf"`((?:{'|'.join((*PACKAGES, 'docs'))})/[\w./-]+)`", page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    ]
    assert not lost, "\n".join(lost)
