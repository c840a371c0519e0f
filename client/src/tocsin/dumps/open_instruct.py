"""open-instruct (`save_traces`): `<rollouts_save_path>/<run>_rollouts_<shard:06d>.jsonl`, appended, one row per sample:
`step, sample_idx, prompt_idx, prompt_tokens, response_tokens, reward, advantage, finish_reason, dataset, ground_truth,
request_info, logprobs`.

- `logprobs` are the rollout engine's only: no mismatch can be told from them.
- By default groups without spread are filtered out before the dump (`filter_zero_std_samples`).
- `step` is the training step (the `global_step` of its other logs counts episodes).
- Beside the shards lie other files, which are not read: `<run>_metadata.jsonl`, and in some versions
  `<run>_filtered_rollouts_<shard>.jsonl` (groups that were not trained on) and `<run>_trainer_logprobs_step<N>.jsonl`.
- Texts are tokens: there is nothing to read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.dumps.sample import BadRow, Dump, Options, Sample, Tokens, number, reals, tokens_id, whole


def read(row: Mapping[str, Any], options: Options) -> Iterable[Sample]:
    """The sample of one row. Raises BadRow."""
    prompt, response = row.get("prompt_tokens"), row.get("response_tokens")
    if not isinstance(prompt, list) or not isinstance(response, list):
        raise BadRow("expected prompt_tokens and response_tokens as lists")
    count = len(response)
    logprobs = reals(row, "logprobs") if row.get("logprobs") is not None else None
    if logprobs is not None and len(logprobs) != count:
        raise BadRow(f"{len(logprobs)} logprobs for {count} response tokens")
    advantages = array("f", [number(row, "advantage")]) * count if row.get("advantage") is not None else None
    reason, dataset = row.get("finish_reason"), row.get("dataset")
    if isinstance(dataset, list):
        dataset = dataset[0] if dataset else None
    yield Sample(
        step=whole(row, "step"),
        prompt_id=tokens_id(prompt),
        reward=number(row, "reward"),
        group=str(whole(row, "prompt_idx")),
        key=str(whole(row, "sample_idx")),
        length=count,
        truncated=None if not isinstance(reason, str) else reason == "length",
        domain=dataset if isinstance(dataset, str) else None,
        tokens=Tokens(count, logprobs, None, advantages),
    )


OPEN_INSTRUCT = Dump(
    "open-instruct-rollouts",
    "open_instruct",
    "open-instruct with save_traces: a folder of <run>_rollouts_<shard>.jsonl",
    read,
    binary=(frozenset((0.0, 1.0)), frozenset((0.0, 10.0))),
    kept_only=True,
)
