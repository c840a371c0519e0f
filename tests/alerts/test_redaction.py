"""No secret in a log record, whoever logs it and however it got there."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.redaction import MIN_SECRET, RedactingFilter, Redactor, install

TOKEN = "xoxb-1/very+secret=="
URL = "https://user:pa55word-long@hooks.slack.com/services/T0000/B0000/abcdefghijklmnop?token=query-secret-1"


@pytest.fixture
def logger() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    """A root of its own with one handler, so that the real root stays as it is."""
    output = io.StringIO()
    root = logging.Logger("root of the test", logging.DEBUG)
    handler = logging.StreamHandler(output)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(extra)s", defaults={"extra": ""}))
    root.addHandler(handler)
    redactor = Redactor()
    redactor.add(TOKEN)
    redactor.add(URL)
    install(redactor, root)
    yield root, output
    for part in (TOKEN, "abcdefghijklmnop", "pa55word-long", "query-secret-1", "very+secret"):
        assert part not in output.getvalue()


def third_party(root: logging.Logger) -> logging.Logger:
    library = logging.Logger("httpx")
    library.parent = root
    return library


@pytest.mark.parametrize(
    "text",
    [TOKEN, URL, quote(TOKEN, safe=""), quote(TOKEN), json.dumps({"a": TOKEN}), "/services/T0000/B0000/abcdefghijklmnop"],
)
def test_every_spelling_in_messages_of_libraries(logger: tuple[logging.Logger, io.StringIO], text: str) -> None:
    root, output = logger
    third_party(root).info("HTTP Request: POST %s", text)
    third_party(root).warning(text)
    assert output.getvalue().count("[redacted]") >= 2


def test_exceptions_stacks_and_extra_fields(logger: tuple[logging.Logger, io.StringIO]) -> None:
    root, output = logger
    try:
        try:
            raise ValueError(f"bad url {URL}")
        except ValueError as error:
            raise RuntimeError(f"token {TOKEN}") from error
    except RuntimeError:
        root.exception("failed", stack_info=True, extra={"extra": {"headers": [TOKEN]}})
    said = output.getvalue()
    assert "RuntimeError: token [redacted]" in said and "ValueError: bad url [redacted]" in said
    assert "Traceback" in said and "headers" in said


def test_a_formatter_of_its_own_sees_no_exception_with_a_secret() -> None:
    redactor = Redactor()
    redactor.add(TOKEN)
    try:
        raise ValueError(TOKEN)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "m", None, sys.exc_info())
    vars(record).update(number=7, text=TOKEN)
    assert RedactingFilter(redactor).filter(record)
    assert record.exc_info is None and "[redacted]" in (record.exc_text or "")
    assert (vars(record)["number"], vars(record)["text"]) == (7, "[redacted]")
    assert TOKEN not in repr(vars(record))


def test_a_url_goes_whole_and_a_stack_is_read_too() -> None:
    redactor = Redactor()
    redactor.add(URL)
    assert redactor.redact(f"POST {URL} failed") == "POST [redacted] failed"
    record = logging.makeLogRecord({"msg": "m", "stack_info": f"Stack:\n  send({URL!r})"})
    RedactingFilter(redactor).filter(record)
    assert record.stack_info == "Stack:\n  send('[redacted]')"


def test_log_arguments_that_do_not_fit_are_no_leak(logger: tuple[logging.Logger, io.StringIO]) -> None:
    root, output = logger
    root.info("one %s two %s", TOKEN)
    assert "bad log arguments" in output.getvalue()


def test_without_secrets_nothing_changes() -> None:
    redactor = Redactor()
    assert redactor.redact("anything [ at all") == "anything [ at all"
    redactor.add("short")
    assert redactor.redact("a short word") == "a short word", "what is shorter than a secret can be is a word"


@given(st.text(min_size=MIN_SECRET), st.text(), st.text())
def test_a_secret_never_survives(secret: str, before: str, after: str) -> None:
    redactor = Redactor()
    redactor.add(secret)
    redactor.add(secret)
    assert secret not in redactor.redact(before + secret + after).replace("[redacted]", "\0")
