"""The chart as a PNG: what is in it, gaps, both variants, and that no number breaks it. (They were also looked at.)"""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from service.evidence.panels import Panel, panels
from service.evidence.picture import DARK, HEAD, LIGHT, PANEL, WIDTH, Palette, axis, paint, plain, png
from tests.kit.bundles import BUNDLE, bundle

LEFT, RIGHT = 106, 776
"""Of the plot."""


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image.convert("RGB")


def near(image: Image.Image, colour: str, left: int, right: int) -> int:
    """Pixels of a colour, or nearly, between two columns of the first panel's plot."""
    wanted = tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))
    part = image.crop((left, HEAD + 48, right, HEAD + 153))
    pixels: list[Any] = list(part.get_flattened_data())
    return sum(max(abs(one - other) for one, other in zip(pixel, wanted, strict=True)) < 40 for pixel in pixels)


def panel(*values: float | None, limit: float | None = None, onset: int | None = None) -> Panel:
    steps = list(range(len(values)))
    return Panel("m", steps, list(values), [limit] * len(steps) if limit is not None else (), onset=onset)


@pytest.mark.parametrize(("dark", "palette"), [(False, LIGHT), (True, DARK)])
def test_both_variants_show_value_limit_and_onset(dark: bool, palette: Palette) -> None:
    data = png(BUNDLE, dark=dark)
    assert data is not None
    image = opened(data)
    assert image.size == (WIDTH, HEAD + PANEL * len(panels(BUNDLE)) + 14)
    assert image.getpixel((2, 2)) == tuple(int(palette.ground[at : at + 2], 16) for at in (1, 3, 5))
    for colour in (palette.value, palette.limit, palette.mark):
        assert near(image, colour, LEFT, RIGHT) > 50, colour


def test_the_same_bundle_gives_the_same_picture() -> None:
    assert png(BUNDLE) == png(BUNDLE)


def test_no_series_no_picture() -> None:
    assert png(bundle()) is None


def test_nan_is_a_gap_with_a_cross() -> None:
    image = opened(paint([panel(1.0, 1.0, math.nan, 1.0, 1.0)], "r", LIGHT))
    middle = (LEFT + RIGHT) // 2
    assert near(image, LIGHT.value, middle - 60, middle + 60) == 0
    assert near(image, LIGHT.value, LEFT, middle - 170) > 50
    assert near(image, LIGHT.limit, middle - 8, middle + 8) > 10


def test_a_value_that_stands_alone_is_a_dot() -> None:
    image = opened(paint([panel(None, None, 1.0, None, None)], "r", LIGHT))
    assert near(image, LIGHT.value, LEFT, RIGHT) > 10


def test_the_onset_is_where_it_is() -> None:
    image = opened(paint([panel(*[1.0] * 11, onset=3)], "r", LIGHT))
    at = LEFT + (RIGHT - LEFT) * 3 // 10
    assert near(image, LIGHT.mark, at - 3, at + 4) > 100
    assert near(image, LIGHT.mark, at + 8, RIGHT) == 0


def test_axes() -> None:
    rising = axis(panel(1.0, 2.0))
    assert rising is not None and 0.0 <= rising.low < 1.0 and rising.high > 2.0 and not rising.log
    wide = axis(panel(1e-6, 1.0))
    assert wide is not None and wide.log and wide.place(1e-3) == pytest.approx(0.5, abs=0.02)
    assert axis(panel(None, math.nan, math.inf)) is None
    far, close = axis(panel(1.0, 1.1, limit=50.0)), axis(panel(1.0, 1.1, limit=1.2))
    assert far is not None and far.high < 2.0, "a limit far away does not flatten the curve"
    assert close is not None and close.high > 1.2
    negative = axis(panel(-1.0, 1.0))
    assert negative is not None and negative.low < -1.0


def test_text_that_the_font_does_not_have() -> None:
    assert plain("grad_norm ± 1…") == "grad_norm ± 1…"
    assert plain("Ünï\n\u202e🔔") == "?n????" and len(plain("x" * 10_000)) == 300


ODD = st.one_of(st.none(), st.floats(), st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, -1.7e308, 1e-300]))


@given(
    values=st.lists(ODD, min_size=1, max_size=6),
    limit=ODD,
    normal=st.one_of(st.none(), st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.floats(0.0, 1e308))),
    onset=st.integers(-3, 9),
    title=st.text(max_size=400),
)
@settings(max_examples=60)
def test_no_number_breaks_it(
    values: list[float | None], limit: float | None, normal: tuple[float, float] | None, onset: int, title: str
) -> None:
    odd = panel(*values, limit=limit, onset=onset)._replace(title=title, normal=normal, fired=onset + 1)
    assert opened(paint([odd], title, DARK)).size[0] == WIDTH
