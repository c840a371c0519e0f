"""From the tree to msgspec types: every kind of type, its error, and the suggestion for a key that does not exist."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rules.config_errors import ConfigErrors
from rules.typed_yaml import load, load_path, load_tree


class Colour(enum.StrEnum):
    BLUE = "blue"
    RED = "red"


class Inner(msgspec.Struct):
    size: Annotated[int, msgspec.Meta(ge=1, le=9)]
    name: str = ""


class Outer(msgspec.Struct):
    title: Annotated[str, msgspec.Meta(min_length=2, max_length=10)]
    colour: Colour = Colour.BLUE
    ratio: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    on: bool = False
    inner: Inner | None = None
    many: list[Inner] = []
    labels: dict[str, str] = {}
    pair: tuple[float, float] | None = None
    words: tuple[str, ...] = ()
    to: str | list[str] = ""
    mode: Literal["fast", "slow"] = "slow"
    free: Any = None
    slug: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "x"
    rename: str = msgspec.field(default="", name="for")


def message(text: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        load(text, "f", Outer)
    return str(caught.value)


def test_every_type_reads() -> None:
    text = """
title: hello
colour: red
ratio: 5e-1
"on": true
inner: {size: 3, name: n}
many: [{size: 1}, {size: 2}]
labels: {model: "1.10"}
pair: [1, 2.5]
words: [a, b]
to: [x, y]
mode: fast
free: {a: [1, two, true]}
for: 3 records
"""
    assert load(text, "f", Outer) == Outer(
        title="hello",
        colour=Colour.RED,
        ratio=0.5,
        on=True,
        inner=Inner(3, "n"),
        many=[Inner(1), Inner(2)],
        labels={"model": "1.10"},
        pair=(1.0, 2.5),
        words=("a", "b"),
        to=["x", "y"],
        mode="fast",
        free={"a": [1, "two", True]},
        rename="3 records",
    )


@pytest.mark.parametrize(
    ("line", "place", "says"),
    [
        ("titel: x", "2:1", "unknown key 'titel' (did you mean 'title'?)"),
        ("zzz: x", "2:1", "unknown key 'zzz' (known here: title"),
        ("ratio: '0.5'", "2:8", "remove the quotes"),
        ("ratio: fast", "2:8", "expected a number, got the text 'fast' (write digits"),
        ("ratio: 30%", "2:8", "got the text '30%' (write a ratio: 30 % is 0.3)"),
        ("ratio: '2.5 %'", "2:8", "(write a ratio: 2.5 % is 0.025)"),
        ("ratio: fast%", "2:8", "(write digits"),
        ("ratio: 1.5", "2:8", "less than 1"),
        ("ratio: 0", "2:8", "more than 0"),
        ("ratio: true", "2:8", "expected a number, got the truth value"),
        ("inner: {size: 0}", "2:15", "at least 1"),
        ("inner: {size: 1.5}", "2:15", "expected a whole number, got 1.5"),
        ("inner: {name: a}", "2:8", "key 'size' is missing"),
        ("inner: [1]", "2:8", "expected keys such as size"),
        ("many: {size: 1}", "2:7", "expected a list"),
        ("many: [{size: 1}, {size: x}]", "2:26", "expected a whole number"),
        ("labels: {model: 1.10}", "2:17", 'write "1.10" in quotes'),
        ("labels: [a]", "2:9", "expected `name: value` entries"),
        ("pair: [1]", "2:7", "expected a list of 2 entries, got 1 entries"),
        ("colour: bleu", "2:9", "none of blue, red (did you mean 'blue'?)"),
        ("mode: medium", "2:7", "none of fast, slow"),
        ("to: 3", "2:5", "expected text"),
        ("to: {a: 1}", "2:5", "expected text or a list, got a mapping"),
        ("slug: A1", "2:7", "does not match"),
        ("words: x", "2:8", "expected a list"),
    ],
)
def test_every_error_has_its_place(line: str, place: str, says: str) -> None:
    found = message(f"title: ok\n{line}\n")
    assert any(text.startswith(f"f:{place}:") and says in text for text in found.splitlines()), found


def test_all_errors_at_once() -> None:
    found = message("ratio: 2\ncolour: x\nmany: [{}]\n")
    assert len(found.splitlines()) == 4  # and the title is missing


def test_the_tree_comes_with_the_value() -> None:
    value, tree = load_tree("title: ok\n", "f", Outer)
    assert value.title == "ok"
    assert tree.mark.line == 1


def test_files(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text("title: ok\n", encoding="utf-8")
    assert load_path(good, Outer).title == "ok"
    with pytest.raises(ConfigErrors, match="cannot be read"):
        load_path(tmp_path / "none.yaml", Outer)
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"title: \xff\n")
    with pytest.raises(ConfigErrors, match="not UTF-8"):
        load_path(bad, Outer)


@given(st.text(alphabet="tile:o \n-[]{}'\"#&*0123ab,", max_size=60).map(lambda tail: f"title: ok\n{tail}"))
@settings(max_examples=100)
def test_any_text_loads_or_says_why(text: str) -> None:
    try:
        load(text, "f", Outer)
    except ConfigErrors as errors:
        assert errors.errors
