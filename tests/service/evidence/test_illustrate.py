"""Charts for receivers: from the store, with words for who does not see them."""

from __future__ import annotations

from msgspec.structs import replace

from service.evidence.bundle import pack
from service.evidence.illustrate import illustrate, words
from service.store.model import Commit, EvidenceRow
from service.store.store import Store
from tests.kit.bundles import BUNDLE, bundle
from tests.kit.receivers import delivery


def test_the_chart_of_the_incident_of_a_row() -> None:
    with Store() as store:
        rows = [EvidenceRow(each.incident, each.run, False, pack(each)) for each in (BUNDLE, bundle(incident="bare#1"))]
        store.commit(Commit([], 0.0, evidence=rows))
        draw = illustrate(store.evidence)
        chart = draw(delivery(incident=BUNDLE.incident))
        assert chart is not None and chart.png.startswith(b"\x89PNG") and chart.title == "grpo-7b-042: GradNorm"
        assert draw(delivery(incident="bare#1")) is None, "no series"
        assert draw(delivery(incident="nobody#1")) is None


def test_the_words() -> None:
    assert words(BUNDLE) == (
        "Onset at step 120. grad_norm is 15 at step 130, limit 10, moved at step 120, not finite at 1 steps."
    )
    rule = replace(BUNDLE.rules[0], said=())
    assert words(replace(BUNDLE, rules=(rule,), lines=())) == "Onset at step 120."
