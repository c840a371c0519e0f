"""The commit that git's own files name is the one that git names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from service.evidence.revision import commit_of, revision


def git(folder: Path, *arguments: str) -> str:
    """git without anybody's configuration."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"]
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": "/usr/bin:/bin:/usr/local/bin"}
    done = subprocess.run(["git", *who, *arguments], cwd=folder, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with one commit and rules in a folder."""
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.yaml").write_text("group: a\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_a_branch_packed_refs_a_detached_head_and_a_linked_tree(tree: Path) -> None:
    head = git(tree, "rev-parse", "HEAD")
    assert commit_of(tree / "rules") == head and commit_of(tree / "rules" / "a.yaml") == head
    git(tree, "pack-refs", "--all")
    assert commit_of(tree / "rules") == head
    git(tree, "worktree", "add", "-q", str(tree / "linked"))
    assert commit_of(tree / "linked" / "rules") == head
    git(tree, "commit", "-q", "--allow-empty", "-m", "two")
    git(tree, "checkout", "-q", head)
    assert commit_of(tree / "rules") == head


def test_before_the_first_commit_and_without_git_there_is_none(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "gone" / "deeper") == ""
    git(tmp_path, "init", "-q")
    assert commit_of(tmp_path) == ""
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\xfe")
    assert commit_of(tmp_path) == ""


def test_the_digest_follows_content_and_names_and_order(tree: Path) -> None:
    rules = tree / "rules"
    first = revision([rules])
    assert first.commits == ((str(rules), git(tree, "rev-parse", "HEAD")),) and len(first.digest) == 64
    (rules / "a.yaml").write_text("group: b\n")
    second = revision([rules])
    assert second.digest != first.digest and second.commits == first.commits
    (rules / "a.yaml").rename(rules / "b.yaml")
    assert revision([rules]).digest != second.digest
    assert revision([rules / "b.yaml"]).digest == revision([rules]).digest
