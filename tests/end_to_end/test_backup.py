"""A backup of the store while a collector works on it, and a collector that goes on from the restored copy."""

from __future__ import annotations

import gzip
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit import recorded, services
from tests.kit.collector_process import CollectorProcess, FakePagerDuty
from tests.kit.kafka import Broker
from tests.kit.services import until

SCRIPT = services.ROOT / "deploy" / "tocsin-backup"
RUN = "tiny-engine_sync-s1"
PAGED_BY = 150
"""Records after which it has paged: the fault begins at step 120."""


@pytest.fixture
def pagerduty() -> Iterator[FakePagerDuty]:
    server = FakePagerDuty()
    yield server
    server.close()


def take(store: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(store), str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def opened(pagerduty: FakePagerDuty) -> Counter[str]:
    """How often somebody was woken, by dedup key: a trigger while the key is not open."""
    found: Counter[str] = Counter()
    alive: set[str] = set()
    for event in pagerduty.events:
        key = event["dedup_key"]
        if event["event_action"] == "resolve":
            alive.discard(key)
        elif event["event_action"] == "trigger" and key not in alive:
            found[key] += 1
            alive.add(key)
    return found


def restore(copy: Path, store: Path) -> None:
    """Puts a copy in the place of a store, by the commands of the page."""
    page = (services.ROOT / "docs" / "operate" / "backup.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^ +```sh\n(.*?)^ +```$", page.partition("## Restore")[2], re.DOTALL | re.MULTILINE)
    script = textwrap.dedent(block).replace("tocsin.db", store.name)
    subprocess.run(["sh", "-ec", script], cwd=store.parent, env={**os.environ, "COPY": str(copy)}, check=True, timeout=300)


READ = "SELECT coalesce(sum(next_offset), 0) FROM positions"
DUE = "SELECT count(*) FROM deliveries WHERE status IN ('pending', 'sending')"


def ask(store: Path, query: str) -> int:
    """The one number of a query."""
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as found:
        (number,) = found.execute(query).fetchone()
    return int(number)


@pytest.mark.kafka
def test_a_restored_copy_goes_on_without_a_second_page(kafka_broker: Broker, tmp_path: Path, pagerduty: FakePagerDuty) -> None:
    lines = gzip.decompress((recorded.need() / "tiny" / "engine_sync-s1.jsonl.gz").read_bytes()).splitlines()
    topic = kafka_broker.topic("backup", configs={"message.timestamp.type": "LogAppendTime"})
    collector = CollectorProcess(tmp_path / "collector", kafka_broker.bootstrap, topic, pagerduty=pagerduty.url)
    try:
        collector.start()
        kafka_broker.produce(topic, lines[:PAGED_BY], key=RUN.encode())
        until(lambda: opened(pagerduty), "the sick run pages")
        # While it reads on: the copy is of some moment in between.
        kafka_broker.produce(topic, lines[PAGED_BY:200], key=RUN.encode(), linger_ms=5)
        done = take(collector.store, tmp_path / "copies")
        assert done.returncode == 0, done.stderr
        copy = Path(done.stdout.strip())
        assert PAGED_BY <= ask(copy, READ) <= 200
        kafka_broker.produce(topic, lines[200:220], key=RUN.encode())
        until(lambda: ask(collector.store, READ) == 220, "it has read on")
        before = opened(pagerduty)
        collector.kill()
        restore(copy, collector.store)
        assert {each.name for each in (collector.folder / "aside").iterdir()} >= {"store.db", "store.db-wal"}
        collector.start()
        kafka_broker.produce(topic, lines[220:], key=RUN.encode())
        until(lambda: ask(collector.store, READ) == len(lines), "it has read everything")
        until(lambda: ask(collector.store, DUE) == 0, "everything is delivered")
        assert opened(pagerduty) == before, "nobody is woken twice, and for nothing new"
        assert sum(before.values()) == 1
        assert collector.stop() == 0
    finally:
        collector.close()


def a_store(path: Path, rows: int = 1) -> None:
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("CREATE TABLE positions (name, next_offset)")
        made.executemany("INSERT INTO positions VALUES (?, ?)", [(str(row), row) for row in range(rows)])
        made.commit()


def test_what_is_only_in_the_log_is_in_the_copy(tmp_path: Path) -> None:
    a_store(tmp_path / "tocsin.db")
    with closing(sqlite3.connect(tmp_path / "tocsin.db")) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("INSERT INTO positions VALUES ('late', 7)")
        writer.commit()
        assert b"late" not in (tmp_path / "tocsin.db").read_bytes()
        writer.execute("BEGIN IMMEDIATE")  # a writer at work is neither waited for nor disturbed
        writer.execute("INSERT INTO positions VALUES ('unfinished', 100)")
        done = take(tmp_path / "tocsin.db", tmp_path / "copies")
        writer.commit()
    assert done.returncode == 0, done.stderr
    (copy,) = (tmp_path / "copies").iterdir()
    assert str(copy) == done.stdout.strip() and copy.stat().st_mode & 0o777 == 0o600
    assert ask(copy, READ) == 7


def test_the_page_restores_where_there_is_no_log(tmp_path: Path) -> None:
    """A collector that ended in order leaves no -wal and no -shm; what lies beside the store and is none of it stays."""
    store, copy = tmp_path / "tocsin.db", tmp_path / "tocsin-20261130T080000Z.db"
    store.write_bytes(b"damaged")
    store.chmod(0o640)
    copy.write_bytes(b"whole")
    copy.chmod(0o600)
    restore(copy, store)
    assert store.read_bytes() == b"whole" and store.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in (tmp_path / "aside").iterdir()] == ["tocsin.db"]
    assert copy.exists()


def test_old_copies_go_and_strangers_stay(tmp_path: Path) -> None:
    a_store(tmp_path / "tocsin.db")
    copies = tmp_path / "copies"
    copies.mkdir()
    for name in ("tocsin-20260101T000000Z.db", "tocsin-20260102T000000Z.db", "other-20250101T000000Z.db", "tocsin-notes.db"):
        (copies / name).touch()
    done = take(tmp_path / "tocsin.db", copies, "--keep", "2")
    assert done.returncode == 0, done.stderr
    names = sorted(each.name for each in copies.iterdir())
    assert names[:1] == ["other-20250101T000000Z.db"] and "tocsin-notes.db" in names
    assert "tocsin-20260101T000000Z.db" not in names and "tocsin-20260102T000000Z.db" in names
    assert len(names) == 4


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: None, "there is no store"),
        (
            lambda path: path.write_bytes(b"not a database, and long enough to be looked at as one" * 50),
            "file is not a database",
        ),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE t (x)").connection.close(), "is no store of Tocsin"),
    ],
    ids=["none", "rubbish", "another database"],
)
def test_what_cannot_be_copied_leaves_nothing(make: object, said: str, tmp_path: Path) -> None:
    assert callable(make)
    make(tmp_path / "tocsin.db")
    done = take(tmp_path / "tocsin.db", tmp_path / "copies")
    assert done.returncode == 1 and said in done.stderr
    assert not (tmp_path / "copies").exists() or os.listdir(tmp_path / "copies") == []
