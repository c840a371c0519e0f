"""NeMo RL: `<log_dir>/exp_NNN/train_data_step{N}.jsonl`, one row per sample, one file per step.

Traps:

- Each value stands alone in a list (`"rewards": [1.0]`, `"token_ids": [[...]]`): rows are batches of one. Plain values are
  read as well. `idx` is the row's number in the file and says nothing about prompts: samples with the same prompt tokens are
  one group (the sampler writes `num_generations_per_prompt` rows in a row).
- All token arrays span prompt and response, padded to the widest sample; logprobs are 0 outside the response.
- With dynamic sampling `rewards` holds the rewards of all generated samples, cut to the number of rows, so row i's reward is
  another sample's. `filtered_rewards` is the row's own, and its presence says that the file holds only the kept groups.
- `prev_logprobs` are zeros when the trainer did not compute them (`force_on_policy_ratio`); `placeholder` tells.
- Old versions write no token mask: then there are no token measures, as a logprob of 0 is no sign of padding.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from tocsin.dumps.sample import BadRow, Dump, Options, Sample, Tokens, number, reals, text_id, tokens_id, whole


def read(row: Mapping[str, Any], options: Options) -> Iterable[Sample]:
    """The sample of one row. Raises BadRow."""
    if "full_result" in row and "rewards" not in row:
        raise BadRow("a result of NeMo Gym, without the arrays of the native dump")
    filtered = "filtered_rewards" in row
    reward = number(row, "filtered_rewards" if filtered else "rewards")
    prompt, response = _texts(row.get("content"))
    lists = {key: _list(row, key) for key in _TOKEN_KEYS if key in row}
    mask = lists.get("token_loss_mask")
    tokens = _tokens(row, lists, mask) if mask is not None else None
    if mask is not None and (ids := lists.get("token_ids")) is not None:
        if len(ids) != len(mask):
            raise BadRow(f"token_ids has {len(ids)} entries, the mask {len(mask)}")
        end = next((at for at, trained in enumerate(mask) if trained), None)
        if end is None:  # no response at all: the prompt ends where the padding begins
            end = whole(row, "input_lengths") if "input_lengths" in row else len(ids)
        prompt_id = tokens_id(ids[:end])
    elif prompt:
        prompt_id = text_id(prompt)
    else:
        raise BadRow("neither token_ids with token_loss_mask nor content: no prompt to tell its group by")
    yield Sample(
        prompt_id=prompt_id,
        reward=reward,
        length=None if mask is None else sum(map(bool, mask)),
        prompt=prompt,
        response=response,
        tokens=tokens,
        filtered=filtered,
    )


_TOKEN_KEYS = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs", "advantages")


def _tokens(row: Mapping[str, Any], lists: Mapping[str, list[Any]], mask: list[Any]) -> Tokens:
    if "sample_loss_mask" in row and not number(row, "sample_loss_mask"):
        return Tokens(0)
    taken: dict[str, array[float] | None] = dict.fromkeys(_TOKEN_KEYS)
    count = sum(map(bool, mask))
    for key in ("generation_logprobs", "prev_logprobs", "advantages"):
        if key not in lists:
            continue
        if key == "advantages" and len(lists[key]) == 1 != len(mask):  # one for the whole sample
            taken[key] = array("f", [number(row, key)]) * count
        else:
            taken[key] = reals(lists, key, mask)
    return Tokens(count, taken["generation_logprobs"], taken["prev_logprobs"], taken["advantages"])


def _list(row: Mapping[str, Any], key: str) -> list[Any]:
    """A token array, out of its batch of one."""
    value = row[key]
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list):
        value = value[0]
    if not isinstance(value, list):
        raise BadRow(f"{key} is {value!r:.40}, expected a list")
    return value


def _texts(content: object) -> tuple[str, str]:
    """(prompt, response) of the messages: the first is the prompt, what follows the response."""
    while isinstance(content, list) and len(content) == 1:
        content = content[0]
    if isinstance(content, str):
        return "", content
    if isinstance(content, list) and all(isinstance(message, str) for message in content) and content:
        return content[0], "\n".join(content[1:])
    return "", ""


NEMO = Dump(
    "nemo-samples",
    "nemo_rl",
    "NeMo RL: a folder of train_data_step<N>.jsonl, or the log_dir with its exp_NNN",
    read,
)
