"""Which rules are in force: a digest over their files, and the git commit of each rule directory that lies in a work tree.

Read when rules are loaded, from git's own files; no program is called. A work tree may have changes that no commit has, so the
commit says where to look and the digest whether it is the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from service.evidence.bundle import Revision

_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF: Final = re.compile(r"ref: (refs/[^\s]+)")


def revision(sources: Sequence[Path]) -> Revision:
    """Of a bundle's sources (directories and files, in order). Never raises: what cannot be read is left out."""
    digest = hashlib.sha256()
    for source in sources:
        for file in sorted(source.glob("*.yaml")) if source.is_dir() else [source]:
            content = _text(file)
            digest.update(repr((file.name, len(content))).encode())
            digest.update(content.encode("utf-8", "surrogateescape"))
    commits = [(str(source), commit) for source in sources if (commit := commit_of(source))]
    return Revision(digest.hexdigest(), tuple(commits))


def commit_of(path: Path) -> str:
    """The commit that is checked out in the work tree around a path; empty without one, or before its first commit."""
    for folder in (path.absolute(), *path.absolute().parents):
        found = folder / ".git"
        if found.is_dir():
            return _head(found)
        if found.is_file():  # a linked work tree or a submodule
            target = _text(found).removeprefix("gitdir:").strip()
            return _head(folder / target) if target else ""
    return ""


def _head(git: Path) -> str:
    head = _text(git / "HEAD").strip()
    if _COMMIT.fullmatch(head):
        return head
    match = _REF.fullmatch(head)
    if match is None:
        return ""
    shared = _text(git / "commondir").strip()
    places = [git, *([git / shared] if shared else [])]
    for place in places:
        if _COMMIT.fullmatch(commit := _text(place / match[1]).strip()):
            return commit
    for place in places:
        for line in _text(place / "packed-refs").splitlines():
            commit, _, name = line.partition(" ")
            if name == match[1] and _COMMIT.fullmatch(commit):
                return commit
    return ""


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "surrogateescape")
    except OSError:
        return ""
