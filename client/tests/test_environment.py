"""What the environment says, and that a wrong value in it ends no job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tocsin import environment
from tocsin.transports import Message
from tocsin.transports.kafka import KafkaTransport
from tocsin.transports.spool import SpoolTransport


@pytest.mark.parametrize(
    ("environ", "rank"),
    [({}, 0), ({"RANK": "3"}, 3), ({"SLURM_PROCID": "2"}, 2), ({"RANK": "1", "SLURM_PROCID": "2"}, 1), ({"RANK": ""}, 0),
     ({"RANK": " 4 "}, 4), ({"RANK": "x", "SLURM_PROCID": "5"}, 5)],
)  # fmt: skip
def test_rank(environ: dict[str, str], rank: int) -> None:
    assert environment.rank(environ) == rank


@pytest.mark.parametrize(
    ("environ", "attempt"),
    [({}, 1), ({"TOCSIN_ATTEMPT": "4"}, 4), ({"TORCHELASTIC_RESTART_COUNT": "0"}, 1), ({"SLURM_RESTART_COUNT": "2"}, 3),
     ({"TOCSIN_ATTEMPT": "0"}, 1), ({"TOCSIN_ATTEMPT": "-3"}, 1), ({"TOCSIN_ATTEMPT": "two"}, 1)],
)  # fmt: skip
def test_attempt(environ: dict[str, str], attempt: int) -> None:
    assert environment.attempt(environ) == attempt


def test_a_spool_unless_kafka_is_named(tmp_path: Path) -> None:
    found = environment.transport({})
    assert isinstance(found, SpoolTransport)
    assert found.folder == Path("tocsin-spool").absolute(), "a job may change its working directory"
    found = environment.transport({"TOCSIN_SPOOL": str(tmp_path)})
    assert isinstance(found, SpoolTransport)
    assert found.folder == tmp_path


def test_a_url_goes_before_the_environment(tmp_path: Path) -> None:
    found = environment.transport({"TOCSIN_KAFKA": "a:9092"}, f"spool:{tmp_path}")
    assert isinstance(found, SpoolTransport)
    with pytest.raises(ValueError):
        environment.transport({"TOCSIN_SPOOL": str(tmp_path)}, "kafka://nowhere")


def test_the_folder_of_the_environment_holds_for_a_url_too(tmp_path: Path) -> None:
    found = environment.transport({"TOCSIN_SPOOL": str(tmp_path)}, "kafka://127.0.0.1:1")
    found.send([Message("r", b'{"run":"r","time":1,"kind":"step"}', 1.0)])
    assert found.flush(30)
    found.close(5)
    assert len(list(tmp_path.glob("kafka-fallback/*/records/*.jsonl"))) == 1


def test_kafka_with_settings_from_a_file(tmp_path: Path) -> None:
    settings = tmp_path / "kafka.json"
    settings.write_text(json.dumps({"security_protocol": "SASL_SSL", "sasl_plain_password": "hunter2"}))
    found = environment.transport(
        {
            "TOCSIN_KAFKA": "a:9092,b:9093",
            "TOCSIN_TOPIC": "t",
            "TOCSIN_SPOOL": str(tmp_path),
            "TOCSIN_KAFKA_SETTINGS": str(settings),
        }
    )
    assert isinstance(found, KafkaTransport)
    found.close(0)


@pytest.mark.parametrize(
    "environ", [{"TOCSIN_KAFKA": "nowhere"}, {"TOCSIN_KAFKA": "a:9092", "TOCSIN_KAFKA_SETTINGS": "{folder}/missing.json"},
                {"TOCSIN_KAFKA": "a:9092", "TOCSIN_KAFKA_SETTINGS": "{folder}/bad.json"}]
)  # fmt: skip
def test_what_cannot_be_used_is_told_and_records_go_to_the_spool(
    environ: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad.json").write_text('{"sasl_plain_password": "hunter2"')
    environ = {key: value.format(folder=tmp_path) for key, value in environ.items()}
    found = environment.transport({**environ, "TOCSIN_SPOOL": str(tmp_path / "spool")})
    assert isinstance(found, SpoolTransport)
    assert found.folder == tmp_path / "spool"
    assert "TOCSIN_KAFKA" in caplog.text
    assert "hunter2" not in caplog.text
