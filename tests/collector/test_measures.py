"""What `tocsin.batch` measures: each metric has a canonical name, with its label, and a page that explains it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from collector import catalogue
from tocsin.batch import Batch, Settings, Summary, summarize
from tocsin.batch.measures import SAMPLE_MEASURES, TOKEN_MEASURES

PAGES = Path(__file__).parents[2] / "docs" / "measures"


@pytest.fixture(scope="module")
def everything() -> Summary:
    """Of a batch that has every field."""
    random = np.random.default_rng(0)
    rows, width = 8, 24
    shape = (rows, width)
    tokens = {
        name: -random.random(shape)
        for name in (
            "rollout_logprobs",
            "old_logprobs",
            "new_logprobs",
            "ref_logprobs",
            "entropy",
            "values",
            "old_values",
            "returns",
        )
    }
    mask = random.random(shape) < 0.9
    texts = ["the answer is 42 because of it, the answer is 42", "no idea"] * (rows // 2)
    batch = Batch(
        **tokens,
        mask=mask,
        loss_mask=mask,
        completion_tokens=int(mask.sum()),
        token_ids=random.integers(0, 99, shape),
        advantages=random.normal(size=rows),
        raw_advantages=random.normal(size=rows),
        first_minibatch=[True] * 4 + [False] * 4,
        rewards=[0.0, 1.0] * 4,
        prompts=["a", "a", "b", "b"] * 2,
        correct=[0, 1] * 4,
        components={"accuracy": [0.0, 1.0] * 4},
        domains=["math", "code"] * 4,
        kept=[True] * rows,
        truncated=[False] * rows,
        responses=texts,
        prompt_texts=["what is the answer?"] * rows,
        retrieval_scores=random.random((4, 2)),
        retrieval_own=[0, 1, 0, 1],
        loss=0.5,
        grad_norms=[0.5, 2.0],
        grads={"w": np.zeros(3)},
        param_norm=10.0,
        param_update_norm=0.1,
        critic_loss=0.1,
        nll_loss=0.2,
        mtp_loss=0.3,
    )
    settings = Settings(
        dual_clip=3.0,
        value_clip=0.2,
        group_size=4,
        max_response_length=32,
        max_grad_norm=1.0,
        reuse_epochs=1,
        is_bounds=(0.5, 2.0),
        rejection={"token_k1": (0.5, 2.0)},
    )
    summary = summarize(batch, settings)
    assert not summary.skipped
    return summary


def test_every_metric_is_canonical_and_has_its_label(everything: Summary) -> None:
    for name, value in everything.metrics.items():
        metric = catalogue.canonical().get(name)
        assert metric is not None, f"{name} is not in collector/data"
        assert isinstance(value, dict) == (metric.label is not None), name


def test_every_metric_has_a_page(everything: Summary) -> None:
    told = {name for page in PAGES.glob("*.md") for name in re.findall(r"`(\w+)`", page.read_text(encoding="utf-8"))}
    assert everything.metrics.keys() <= told, everything.metrics.keys() - told


def test_pages_name_no_metric_that_nobody_measures(everything: Summary) -> None:
    for page in PAGES.glob("*.md"):
        for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|.*", page.read_text(encoding="utf-8"), re.MULTILINE):
            for name in re.findall(r"`(\w+)`", row):
                if name in catalogue.canonical():
                    assert name in everything.metrics, f"{page.name}: {name}"


def test_the_index_names_every_page() -> None:
    listed = re.findall(r"^\| \[\w+\]\((\w+\.md)\)", (PAGES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in PAGES.glob("*.md") if page.name != "README.md")


def test_the_index_says_what_each_measure_needs() -> None:
    text = (PAGES / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \| \[(\w+)\]\((\w+)\.md\) \|$", text, re.MULTILINE)
    listed = {name: (re.findall(r"`(\w+)`", needs), re.findall(r"`(\w+)`", uses)) for name, needs, uses, _, _ in rows}
    found = {kind.name: (list(kind.needs), list(getattr(kind, "uses", ()))) for kind in TOKEN_MEASURES}
    found |= {sample.name: (list(sample.needs), list(sample.uses)) for sample in SAMPLE_MEASURES}
    assert listed == found
    assert all(title == page and (PAGES / f"{page}.md").is_file() for *_, title, page in rows)


def test_pages_and_catalogue_agree_on_units() -> None:
    wrong = []
    for page in PAGES.glob("[a-z]*.md"):
        for names, unit in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]+) \|", page.read_text(encoding="utf-8"), re.MULTILINE):
            for name in re.findall(r"`(\w+)`", names):
                metric = catalogue.canonical().get(name)
                if metric is not None and "`" not in unit and unit.partition(" by ")[0] != metric.unit:
                    wrong.append(f"{page.name}: {name} is in {unit}, {metric.unit} in the catalogue")
    assert wrong == []
