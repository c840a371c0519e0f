"""Lines of a log, through its format's parser."""

from __future__ import annotations

from tocsin.formats import Format, Parsed
from tocsin.wire import StepRecord


def parse(format: Format, *lines: str) -> list[Parsed]:
    """Everything that these lines give, what is held at the end included."""
    parser = format.parser(run="r")
    out: list[Parsed] = []
    offset = 0
    for text in lines:
        line = text.encode() + b"\n"
        out += parser.feed(line, offset)
        offset += len(line)
    return [*out, *parser.finish()]


def steps(format: Format, *lines: str) -> list[StepRecord]:
    """The step records among it."""
    return [place.record for place in parse(format, *lines) if isinstance(place.record, StepRecord)]
