"""tocsin-ship and a real broker that is away in the middle: every record arrives, in order."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.kit import kafka, services
from tocsin import wire
from tocsin.ship import cli
from tocsin.ship.bookmarks import Bookmarks, beside
from tocsin.ship.follow import Follower
from tocsin.ship.shipper import Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports.kafka import KafkaTransport

pytestmark = pytest.mark.kafka


def test_a_broker_that_is_away_in_the_middle(private_broker: kafka.Broker, tmp_path: Path) -> None:
    topic = private_broker.topic("records")
    path = tmp_path / "a.jsonl"

    def write(*steps: int) -> None:
        with path.open("a") as file:
            file.writelines(json.dumps({"step": step, "data": {"actor/lr": 1.0}}) + "\n" for step in steps)

    url = f"kafka://{private_broker.bootstrap}/{topic}"
    write(*range(1, 301))
    status = cli.run(
        [str(path), "--once", "--kafka", private_broker.bootstrap, "--topic", topic],
        environ={},
        say=lambda text: None,
        clock=lambda: 1790000000.0,
        stop=threading.Event(),
    )
    assert status == 0

    said: list[str] = []
    transport = KafkaTransport([private_broker.bootstrap], topic=topic, fallback=tmp_path / "fallback", patience=2.0)
    reading = Reading(to=url, run="a", bookmarks=Bookmarks(beside(path)), key=path.name, clock=lambda: 1790000000.0)
    shipper = Shipper([Log(Follower(path, "auto", reading), reading)], transport, said.append, flush_seconds=2.0)
    try:
        private_broker.stop()
        write(*range(301, 401))
        shipper.poll_once()
        write(*range(401, 501))
        shipper.poll_once()
        assert said == ["the transport does not confirm; waiting, the logs keep what is new"]
        private_broker.start()
        services.until(lambda: not shipper.poll_once() and said[-1] == "the transport confirms again", "confirmation")
        shipper.poll_once()
        assert shipper.settle()
    finally:
        shipper.close()
        transport.close(5.0)
    records = [wire.decode(message.value).record for message in private_broker.read(topic)]
    steps = [record.step for record in records if isinstance(record, wire.StepRecord)]
    assert list(dict.fromkeys(steps)) == list(range(1, 501))
