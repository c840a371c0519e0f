"""ms-swift (`log_completions`): `<output_dir>/completions.jsonl`, appended, one row per log with a list per column:
`step` (texts; Megatron: `gen_step`), `prompt`, `completion`, one column per reward function, `advantages`, `entropy`.

- The reward is the sum of the functions' columns with their weights (`--config reward_weights=[...]`, 1 by default). Every
  column of numbers is taken for a function unless `--config reward_functions=["accuracy", ...]` names them.
- A row repeats the last one's samples when logs are more frequent than generation: such a row is no new step.
- There are no token lengths: lengths are told in characters, under names of their own.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tocsin.dumps.sample import BadRow, Dump, Options, Sample, real, text_id, weighted
from tocsin.formats.base import readable_step

_OWN: Final = frozenset(("step", "gen_step", "prompt", "completion", "advantages", "advantage", "entropy"))


def read(row: Mapping[str, Any], options: Options) -> Iterable[Sample]:
    """The samples of one row. Raises BadRow."""
    prompts, responses = _column(row, "prompt"), _column(row, "completion")
    steps = _column(row, "step" if "step" in row else "gen_step")
    if not len(prompts) == len(responses) == len(steps):
        raise BadRow(f"columns of {len(steps)} steps, {len(prompts)} prompts and {len(responses)} completions")
    rewards = rewards_of(row, len(prompts))
    if missing := [name for name in options.reward_functions if name not in rewards]:
        raise BadRow(f"no column of numbers {missing[0]!r}")
    if options.reward_functions:
        rewards = {name: rewards[name] for name in options.reward_functions}
    return samples(prompts, responses, steps, rewards, options)


def rewards_of(columns: Mapping[str, Any], count: int) -> dict[str, list[float]]:
    """The columns of numbers, which are reward functions; null (the function does not apply) is NaN."""
    found: dict[str, list[float]] = {}
    for name, column in columns.items():
        if name in _OWN or not isinstance(column, list) or len(column) != count:
            continue
        values = [float("nan") if value is None else real(value) for value in column]
        if all(value is not None for value in values):
            found[name] = [value for value in values if value is not None]
    return found


def samples(
    prompts: list[Any], responses: list[Any], steps: list[Any], rewards: Mapping[str, list[float]], options: Options
) -> Iterable[Sample]:
    """One sample per line of the columns. Raises BadRow."""
    if not rewards:
        raise BadRow("no column of numbers: no reward function")
    for at, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        if (step := readable_step(steps[at])) is None:
            raise BadRow(f"step is {steps[at]!r:.40}, expected a number of 0 or more")
        values = {name: column[at] for name, column in rewards.items()}
        asked = plain_text(prompt)
        yield Sample(
            step=step,
            prompt_id=text_id(asked),
            key=str(at),
            reward=weighted(values.values(), options.reward_weights),
            prompt=asked,
            response=plain_text(response),
            components=values,
        )


def plain_text(value: object) -> str:
    """A text, or the texts of a conversation's messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        contents = [message.get("content") if isinstance(message, dict) else message for message in value]
        return "\n".join(content for content in contents if isinstance(content, str))
    return ""


def checksum(row: Mapping[str, Any]) -> int:
    """Of the texts and rewards of a row, without its step."""
    told = {key: row[key] for key in sorted(row) if key not in ("step", "gen_step")}
    return zlib.crc32(repr(told).encode("utf-8", "replace"))


def _column(row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key)
    if not isinstance(value, list):
        raise BadRow(f"expected a list {key!r}")
    return value


MS_SWIFT = Dump("ms-swift-completions", "ms_swift", "ms-swift with log_completions: completions.jsonl", read, repeats=checksum)
