"""Charts: every value within the frame, gaps and odd values shown as what they are, the same said in words."""

from __future__ import annotations

import math
import re

from hypothesis import example, given
from hypothesis import strategies as st

from service.http.pages.charts import HEIGHT, WIDTH, Chart, chart, charts


def drawn(*args: object, **options: object) -> Chart:
    found = chart(*args, **options)  # type: ignore[arg-type]  # one-liners of tests
    assert found is not None
    return found


def test_a_line_goes_from_edge_to_edge_with_its_threshold_and_onset() -> None:
    found = drawn("grad_norm", [1, 2, 3], [0.0, 5.0, 10.0], limits=[5.0, 5.0, 5.0], onset=2, normal=(0.0, 5.0))
    assert found.lines == ["M56 126L203 69L350 12"]
    assert found.limits == ["M56 69L203 69L350 69"]
    assert (found.onset, found.band, found.dots) == (203.0, (69.0, 57.0), [(350.0, 12.0)])
    assert [tick.text for tick in found.y_ticks] == ["0", "10"]
    assert [tick.text for tick in found.x_ticks] == ["1", "2", "3"]
    assert found.words == "steps 1 to 3, 0 before the onset at step 2, 5 then, newest 10, limit 5, normal 0 to 5"


def test_gaps_break_the_line_and_odd_values_are_crosses() -> None:
    found = drawn("x", [1, 2, 3, 4, 5, 6], [1.0, 2.0, None, 3.0, math.nan, math.inf])
    assert len(found.lines) == 1 and len(found.dots) == 1 and len(found.odd) == 2
    assert found.words.endswith("newest inf, 2 values not finite (crosses)")


def test_without_a_finite_value_there_are_only_crosses() -> None:
    found = drawn("x", [1, 2], [math.nan, math.nan])
    assert (found.lines, found.dots, len(found.odd)) == ([], [], 2)


def test_a_constant_is_a_line_in_the_middle() -> None:
    found = drawn("x", [1, 2], [3.0, 3.0])
    assert found.lines == ["M56 69L350 69"] and [tick.text for tick in found.y_ticks] == ["3"]


def test_a_limit_far_away_does_not_flatten_the_line() -> None:
    found = drawn("x", [1, 2], [1.0, 2.0], limits=[100.0, 100.0])
    assert found.limits == [] and "limit 100" in found.words
    assert [tick.text for tick in found.y_ticks] == ["1", "2"]


def test_nothing_is_no_chart() -> None:
    assert chart("x", [], []) is None and chart("x", [1], [None]) is None
    assert charts([None, chart("x", [1], [1.0])]) == [drawn("x", [1], [1.0])]


values = st.lists(st.none() | st.floats(), min_size=1, max_size=60)


@given(values, st.none() | st.floats(), st.none() | st.tuples(st.floats(), st.floats()), st.integers(-5, 65))
@example([6e307], None, (0.0, math.inf), 0)
@example([6e307, -6e307], -math.inf, (-math.inf, math.inf), 0)
def test_everything_stays_within_the_frame(
    found: list[float | None], limit: float | None, normal: tuple[float, float] | None, onset: int
) -> None:
    steps = list(range(len(found)))
    made = chart("x", steps, found, limits=[limit] * len(found), normal=normal, onset=onset)
    assert (made is None) == all(value is None for value in found)
    if made is None:
        return
    numbers = [float(text) for line in (*made.lines, *made.limits) for text in re.findall(r"[-+\d.einfa]+", line)]
    for x, y in [*zip(numbers[::2], numbers[1::2], strict=True), *made.dots]:
        assert 0 <= x <= WIDTH and 0 <= y <= HEIGHT
    assert all(0 <= x <= WIDTH for x in made.odd)
    assert made.onset is None or 0 <= made.onset <= WIDTH
    if made.band is not None:
        assert 0 <= made.band[0] and made.band[0] + made.band[1] <= HEIGHT
