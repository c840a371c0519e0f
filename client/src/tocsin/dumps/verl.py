"""verl: `trainer.rollout_data_dir/<step>.jsonl`, one row per sample: `input, output, gts, score, step`, the keys of the reward
function's extra info, `request_id`, and in the V1 trainer `uid` = `<prompt>_<rollout>_<output>`.

- The prompt part of `uid` is made anew in every step: it tells groups apart, and the text of `input` identifies the prompt.
  V0 has no `uid`: samples with equal `input` are one group.
- A rollout may have several outputs (a trajectory in pieces) with one reward: the last stands for the rollout.
- `acc` of the reward function says whether a sample is correct (1 or true). Without it see `Dump.binary`.
- There are no token lengths: lengths are told in characters, under names of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tocsin.dumps.sample import Dump, Options, Sample, components_of, number, real, text, text_id

_OWN: Final = frozenset(("input", "output", "gts", "score", "step", "uid", "request_id"))
_OUTPUT: Final = re.compile(r"\d{1,18}")


def read(row: Mapping[str, Any], options: Options) -> Iterable[Sample]:
    """The sample of one row. Raises BadRow."""
    prompt, response = text(row, "input"), text(row, "output")
    group, rollout, part = _places(row.get("uid"))
    request = row.get("request_id")
    accuracy = real(row.get("acc"))
    yield Sample(
        prompt_id=text_id(prompt),
        reward=number(row, "score"),
        group=group,
        rollout=rollout,
        part=part,
        key=f"{request} {text_id(response)}" if isinstance(request, str) and request else "",
        correct=None if accuracy is None else accuracy >= 1.0,
        prompt=prompt,
        response=response,
        components=components_of(row, _OWN),
    )


def _places(uid: object) -> tuple[str, str, int]:
    """(group, rollout, output) of a V1 uid; empty for anything else."""
    if not isinstance(uid, str):
        return "", "", 0
    rollout, _, output = uid.rpartition("_")
    group, _, _ = rollout.rpartition("_")
    return (group, rollout, int(output)) if group and _OUTPUT.fullmatch(output) else ("", "", 0)


VERL = Dump("verl-rollouts", "verl", "verl: trainer.rollout_data_dir, a folder of <step>.jsonl", read)
