"""References to secrets, and that nothing but the value itself ever shows the value."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.redaction import Redactor
from alerts.secrets import SecretError, SecretRef, Secrets, is_reference, parse_reference

PLAIN = "xoxb-this-is-the-very-secret"


def secrets(environ: dict[str, str], folder: Path = Path("/nonexistent")) -> Secrets:
    return Secrets(Redactor(), environ, folder)


def test_references() -> None:
    assert parse_reference("env:SLACK_TOKEN") == SecretRef("env", "SLACK_TOKEN")
    assert parse_reference("file:/run/secrets/slack token") == SecretRef("file", "/run/secrets/slack token")
    assert str(parse_reference("file:a/b")) == "file:a/b"
    assert is_reference("env:X") and not is_reference(PLAIN)


@pytest.mark.parametrize("text", [PLAIN, "", "env:", "env:a-b", "env:1A", "file:", "file: x", "ENV:X", "vault:x", "env:X\n"])
def test_anything_else_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(SecretError, match="by reference") as refused:
        parse_reference(text)
    assert PLAIN not in str(refused.value)


def test_a_secret_from_the_environment() -> None:
    of = secrets({"A": f"  {PLAIN}\n"})
    assert of.value(SecretRef("env", "A")) == PLAIN
    assert of.redactor.redact(f"<{PLAIN}>") == "<[redacted]>"
    assert PLAIN not in repr(of) + repr(of.redactor) + str(vars(of.redactor).keys())


def test_a_file_is_read_when_it_is_used(tmp_path: Path) -> None:
    of = secrets({}, tmp_path)
    (tmp_path / "token").write_text(PLAIN + "\n")
    assert of.value(SecretRef("file", "token")) == PLAIN, "relative to the folder of the configuration"
    (tmp_path / "token").write_text("the-next-secret\n")
    assert of.value(SecretRef("file", str(tmp_path / "token"))) == "the-next-secret"
    assert of.redactor.redact(f"{PLAIN} the-next-secret") == "[redacted] [redacted]", "the old one stays redacted"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "env:A is empty"),
        ("  \n", "env:A is empty"),
        ("two words here", "blanks"),
        ("line\nbreak-in-it", "blanks"),
        ("sécret-sécret", "characters that no token"),
        ("short", "fewer than 8"),
    ],
)
def test_a_value_that_cannot_be_one(value: str, message: str) -> None:
    of = secrets({"A": value})
    with pytest.raises(SecretError, match=message) as refused:
        of.value(SecretRef("env", "A"))
    assert not value.strip() or value.strip() not in str(refused.value)


def test_what_leads_nowhere_says_so(tmp_path: Path) -> None:
    of = secrets({}, tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\xfd secret")
    (tmp_path / "long").write_bytes(b"x" * 20_000)
    for reference, message in [
        ("env:MISSING", "env:MISSING: no such environment variable"),
        ("file:missing", "file:missing cannot be read: No such file or directory"),
        ("file:.", "file:. cannot be read: Is a directory"),
        ("file:a\0b", "file:a\0b cannot be read: no path"),
        ("file:binary", "file:binary is not UTF-8"),
        ("file:long", "more than 16384 bytes"),
    ]:
        with pytest.raises(SecretError) as refused:
            of.value(parse_reference(reference))
        assert message in str(refused.value)
