"""Rule files as they stand in a directory, or as they stood at a git revision.

Errors:

    NoSuchRules     neither a path nor a revision; the message says what to write instead
"""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

_GIT_SECONDS: Final = 120
_REVISION_HELP: Final = "name a folder or file of rules, or a git revision such as main, HEAD~1 or main:my-rules"


class NoSuchRules(Exception):
    """The text says what is wrong and what to write instead."""


class Sources(NamedTuple):
    """Where the rules of one side lie."""

    name: str
    """As the user wrote it."""
    paths: Sequence[Path]
    """Files and directories, ready to be loaded; empty when the revision had none of the paths."""
    missing: Sequence[str] = ()
    """Paths that the revision does not have."""
    unpacked: Path | None = None
    """Where a revision was unpacked."""

    def readable(self, message: str) -> str:
        """A message about these files with the place that the user knows instead of where they were unpacked."""
        if self.unpacked is None:
            return message
        return message.replace(f"{self.unpacked}/", f"{self.name.partition(':')[0]}:")


def sources(name: str, given: Sequence[Path], scratch: Path) -> Sources:
    """The rules that `name` means. A path that exists is itself; anything else is a revision, of which the `given` paths are
    unpacked into `scratch` (or the one behind the colon of `main:my-rules`). Raises NoSuchRules.
    """
    if Path(name).exists():
        return Sources(name, [Path(name)])
    revision, colon, inside = name.partition(":")
    if not revision:
        raise NoSuchRules(f"{name!r} is no revision ({_REVISION_HELP})")
    place = given[0] if given and not colon else Path()
    folder = place if place.is_dir() else place.parent
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent  # the path may have been removed since
    top = Path(_git(folder, ["rev-parse", "--show-toplevel"], f"{name}: there is no such folder, and no git repository here"))
    commit = _commit(folder, revision, name)
    wanted = [_in_tree(folder, inside)] if colon else [_relative(path, top) for path in given]
    if not wanted:
        raise NoSuchRules(f"{name}: say which paths of the revision (--rules my-rules, or write {name}:my-rules)")
    there = [path for path in wanted if _is_there(top, commit, path)]
    missing = [path for path in wanted if path not in there]
    if there:
        _unpack(top, commit, there, scratch)
    return Sources(name, [scratch / path for path in there], missing, scratch)


def _in_tree(folder: Path, inside: str) -> str:
    """As git means it: from the top of the repository, or with ./ from here."""
    if not inside.startswith("./"):
        return inside.strip("/") or "."
    prefix = _git(folder, ["rev-parse", "--show-prefix"], "no git repository here")
    return (prefix + inside[2:]).strip("/") or "."


def _relative(path: Path, top: Path) -> str:
    try:
        return path.resolve().relative_to(top.resolve()).as_posix()
    except ValueError:
        raise NoSuchRules(f"{path} lies outside of the git repository {top} (name a path inside it)") from None


def _commit(folder: Path, revision: str, name: str) -> str:
    wrong = f"{name}: there is no such folder, and git knows no such revision ({_REVISION_HELP}; a shallow clone has few)"
    return _git(folder, ["rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"], wrong)


def _is_there(top: Path, commit: str, path: str) -> bool:
    if path == ".":
        return True
    return bool(_git(top, ["ls-tree", "--name-only", commit, "--", path], f"git cannot list {path}"))


def _unpack(top: Path, commit: str, paths: Sequence[str], scratch: Path) -> None:
    archive = _run(top, ["archive", "--format=tar", commit, "--", *paths])
    if archive.returncode != 0:
        raise NoSuchRules(f"git archive failed: {_said(archive)}")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(scratch, filter="data")


def _git(folder: Path, arguments: Sequence[str], wrong: str) -> str:
    done = _run(folder, arguments)
    if done.returncode != 0:
        said = _said(done)
        raise NoSuchRules(f"{wrong}: {said}" if said else wrong)
    return done.stdout.decode("utf-8", "replace").strip()


def _run(folder: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except FileNotFoundError:
        raise NoSuchRules("git is not installed, and only git knows revisions (install it, or name two folders)") from None
    except subprocess.TimeoutExpired:
        raise NoSuchRules(f"git {arguments[0]} took longer than {_GIT_SECONDS} s") from None


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    return " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
