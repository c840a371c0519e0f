"""AReaL (`dump_to_file`): `<fileroot>/<experiment>/<trial>/rollout/<version>/<task_id>.jsonl`, one file per task, one row per
sample: `task_id, sample_idx, seqlen, prompt_len, head_version, tail_version, reward, prompt, completion`.

- A folder holds what ended under one version of the weights: the version is the step.
- Correct is a reward above 0, as AReaL counts it itself.
- `seqlen` includes the prompt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.dumps.sample import BadRow, Dump, Options, Sample, number, text, text_id, whole


def read(row: Mapping[str, Any], options: Options) -> Iterable[Sample]:
    """The sample of one row. Raises BadRow."""
    reward, prompt, task = number(row, "reward"), text(row, "prompt"), row.get("task_id")
    if not isinstance(task, int | str):
        raise BadRow(f"task_id is {task!r:.40}, expected a number or text")
    length = whole(row, "seqlen") - whole(row, "prompt_len")
    if length < 0:
        raise BadRow(f"prompt_len {row['prompt_len']} is above seqlen {row['seqlen']}")
    yield Sample(
        prompt_id=text_id(prompt),
        reward=reward,
        group=str(task),
        key=f"{task} {whole(row, 'sample_idx')}",
        correct=reward > (0.0 if options.correct_above is None else options.correct_above),
        length=length,
        prompt=prompt,
        response=text(row, "completion"),
    )


AREAL = Dump("areal-trajectories", "areal", "AReaL with dump_to_file: .../rollout, a folder per version", read)
