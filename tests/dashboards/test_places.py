"""The grid: whatever panels there are, none stands on another or over the edge, and their order is that of the eye."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grafana_dashboards.model import Kind, Panel, Row, identity
from grafana_dashboards.places import COLUMNS, Place, placed


def panel(width: int, height: int) -> Panel:
    return Panel(f"{width}x{height}", Kind.STAT, width, height, (), "x")


PANELS = st.lists(st.builds(panel, st.integers(1, COLUMNS), st.integers(1, 12)), max_size=8)
ROWS = st.lists(st.builds(lambda panels, folded: Row("r", tuple(panels), folded), PANELS, st.booleans()), max_size=5)


def cells(place: Place) -> set[tuple[int, int]]:
    return {(x, y) for x in range(place.x, place.x + place.width) for y in range(place.y, place.y + place.height)}


@given(ROWS)
def test_nothing_overlaps_and_nothing_is_over_the_edge(rows: list[Row]) -> None:
    taken: set[tuple[int, int]] = set()
    for row, heading, panels in placed(rows):
        shown = [heading, *([] if row.collapsed else [place for _, place in panels])]
        for place in shown:
            assert place.x >= 0 and place.x + place.width <= COLUMNS
            assert not taken & cells(place)
            taken |= cells(place)
        assert all(place.y > heading.y for _, place in panels)
        assert [each for each, _ in panels] == list(row.panels)
        order = [(place.y, place.x) for _, place in panels]
        assert order == sorted(order)


@given(ROWS)
def test_a_folded_row_takes_one_line(rows: list[Row]) -> None:
    found = placed(rows)
    for one, other in itertools.pairwise(found):
        if one.row.collapsed:
            assert other.place.y == one.place.y + 1


def test_a_panel_that_is_too_wide() -> None:
    with pytest.raises(ValueError, match="25 columns wide"):
        placed([Row("r", (panel(25, 1),))])


@given(st.text())
def test_an_id_fits_into_grafana(title: str) -> None:
    assert 0 < identity(title) < 2**31 and identity(title) == identity(title)
