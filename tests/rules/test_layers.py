"""Which alert explains which."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rules.layers import Firing, explanations

firings = st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), max_size=8).map(
    lambda items: [Firing(f"A{i}", i, layer, pages, independent) for i, (layer, pages, independent) in enumerate(items)]
)


@given(firings)
def test_only_an_earlier_layer_that_pages_explains(firing: list[Firing]) -> None:
    by_name = {alert.name: alert for alert in firing}
    found = explanations(firing)
    for alert, name in zip(firing, found, strict=True):
        if name:
            by = by_name[name]
            assert by.pages
            assert 1 <= by.layer < alert.layer
            assert not alert.independent
        elif not alert.independent:
            assert not any(other.pages and 1 <= other.layer < alert.layer for other in firing)
    assert len(set(found) - {""}) <= 1


def test_layer_0_explains_nothing_and_a_warning_does_not() -> None:
    later = Firing("Later", 2, 5, True, False)
    assert explanations([Firing("Stalled", 0, 0, True, True), later]) == ["", ""]
    assert explanations([Firing("Gap", 0, 1, False, False), later]) == ["", ""]
    assert explanations([Firing("Gap", 0, 1, True, False), later]) == ["", "Gap"]
    assert explanations([]) == []
