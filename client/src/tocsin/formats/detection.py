"""Which format a file has, told from its content alone: names lie, and `.log` says nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tocsin import wire
from tocsin.formats import areal_console, console_dict, csv_table, flat_jsonl, roll, slime_console, verl_jsonl
from tocsin.formats.base import UnknownFormat
from tocsin.formats.dict_literal import Status, read
from tocsin.formats.event_file import begins_like_one
from tocsin.formats.event_paths import holds_events
from tocsin.formats.reading import head, is_gzip
from tocsin.formats.trl_console import row_kind
from tocsin.formats.verl_console import read_row

HEAD_BYTES: Final = 8 * 1024 * 1024
"""A console may print model output for a long time before its first row."""
_BRACE: Final = re.compile(r"\{(?=['\"])")
_HISTORY: Final = re.compile(rb'"log_history"\s*:\s*\[')
_FIRST_ENTRY: Final = re.compile(rb'"log_history"\s*:\s*\[\s*(?:\]|\{[^{}]*\}|[^\s{\]][^,\]]*[,\]])')
_BARE_HISTORY: Final = re.compile(rb'\[\s*\{[^{}]*"(?:system/)?step"\s*:[^{}]*\}')
_ROLLS_STEP: Final = b'"system/step"'
_TRAINERS_KEYS: Final = (b'"best_metric"', b'"global_step"', b'"max_steps"')
_TRAINING_BAR: Final = rb"(?:\A|[\r\n]) *0%\|[^|]*\| 0/\d+ \[00:00<\?"
"""The Trainer's bar has no words before it; those of engines that load a model have."""
_SIGNS: Final = {
    "verl-console": re.compile(rb"\((?:main_task|\w*TaskRunner|WorkerDict|AgentLoopWorker) pid=\d+|Training Progress:\s"),
    "openrlhf-console": re.compile(rb"\((?:PolicyModel|ReferenceModel|CriticModel)\w*Actor pid=\d+|\(LLMRayActor\w* pid=\d+"),
    "slime-console": re.compile(rb"\((?:Megatron|FSDP)TrainRayActor pid=\d+"),
    "roll-console": re.compile(rb"create tracker stdout\b"),
    "trl-console": re.compile(
        rb"\*{5} Running training \*{5}|Unsloth(?::| \d{4}\.)|Total (?:optimization )?steps = \d|" + _TRAINING_BAR
    ),
}
"""Signs of a job that has not logged a row yet, so that its console is known before it is long. Ray prints the names of its
processes; each is one framework's own."""
LOOKED_FOR: Final = (
    'canonical records ({"v": 1, "kind": ...}), verl JSONL ({"step": ..., "data": {...}}), '
    "other JSON lines with a step, a CSV header with a step column, "
    "trainer_state.json (\"log_history\"), TRL console rows ({'loss': ..., 'grad_norm': ...}), "
    "verl console rows (step:12 - key:value - ...), OpenRLHF's (Global step 12: {...}), slime's (step 5: {...}), "
    "AReaL's (Train step 3/1000 done.), ROLL's (metrics_tag: {...}), event files of TensorBoard"
)


def detect(path: Path) -> str:
    """The name of the format of a file, or of a folder of event files.

    Raises UnknownFormat, and OSError when it cannot be read.
    """
    if path.is_dir() and holds_events(path):
        return "tensorboard"
    beginning = head(path, HEAD_BYTES)
    if (found := recognise(beginning)) is not None:
        if found == "tensorboard" and is_gzip(path):
            raise UnknownFormat(f"{path}: a compressed event file; unpack it first")
        return found
    if not beginning:
        why = "the gzip data are damaged, or hold nothing" if is_gzip(path) else "the file is empty"
        raise UnknownFormat(f"{path}: {why}")
    where = f"the first {len(beginning)} bytes"
    raise UnknownFormat(f"{path}: no known log format in {where}; looked for {LOOKED_FOR}. Is it one of these? Use --format.")


def recognise(beginning: bytes) -> str | None:
    """The format of a log that begins with these bytes; None when nothing is recognised (yet)."""
    if begins_like_one(beginning):
        return "tensorboard"
    stripped = beginning.removeprefix(b"\xef\xbb\xbf").lstrip()
    rows = beginning.splitlines()
    first = next((row for row in rows if row.strip()), b"")
    if bare := _BARE_HISTORY.match(stripped):
        return "roll-state" if _ROLLS_STEP in bare[0] else "trainer-state"
    # A log of lines may hold a history too, as ms-swift's does at its end; a state has it in its one object.
    if stripped.startswith(b"{") and _HISTORY.search(beginning) and (_HISTORY.search(first) or _line_format(first) is None):
        return _state_format(beginning)
    if csv_table.is_header(first):
        return "csv"
    for row in rows:
        if found := _line_format(row):
            return found
    return next((name for name, signs in _SIGNS.items() if signs.search(beginning)), None)


def _state_format(beginning: bytes) -> str | None:
    """Whose state it is, from the first entry of its history; None while that is half-written and nothing else tells."""
    first = _FIRST_ENTRY.search(beginning)
    if first is not None:
        return "roll-state" if _ROLLS_STEP in first[0] else "trainer-state"
    return "trainer-state" if any(key in beginning for key in _TRAINERS_KEYS) else None


def _line_format(line: bytes) -> str | None:
    """The format of which this line is certainly a row."""
    if line.startswith(b"{") and line.rstrip().endswith(b"}"):
        if b'"kind"' in line and _is_record(line):
            return "canonical"
        if b'"data"' in line and verl_jsonl.is_row(line):
            return "verl-jsonl"
        if (b'"step"' in line or b'"global_step/max_steps"' in line or b'"iteration"' in line) and flat_jsonl.is_row(line):
            return "flat-jsonl"
    if b"step:" in line and (row := read_row(line.decode("utf-8", "replace"))) is not None and row[1]:
        return "verl-console"
    if b"Train step " in line and areal_console.is_row(line.decode("utf-8", "replace")):
        return "areal-console"
    if b"metrics_tag: {" in line and roll.is_row(line):
        return "roll-console"
    if b": {'" in line:
        text = line.decode("utf-8", "replace")
        if b"Global step " in line and console_dict.is_row(text):
            return "openrlhf-console"
        if slime_console.is_row(text):
            return "slime-console"
    if b"{'" in line or b'{"' in line:
        text = line.decode("utf-8", "replace")
        for match in _BRACE.finditer(text):
            literal = read(text, match.start())
            if literal.status is Status.COMPLETE and row_kind(literal.values):
                return "trl-console"
    return None


def _is_record(line: bytes) -> bool:
    try:
        wire.decode(line.strip())
    except wire.WireError:
        return False
    return True
