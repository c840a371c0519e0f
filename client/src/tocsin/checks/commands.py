"""What each subcommand of `tocsin-check` does: read the files, run the check, print the report."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tocsin.checks.accumulation import accumulation
from tocsin.checks.consistency import consistency
from tocsin.checks.digests import digests
from tocsin.checks.files import FileError, field, is_npz, read_json, read_npz, read_rows
from tocsin.checks.logprob_files import Keys, read_two
from tocsin.checks.mask_table import EOS, mask_table
from tocsin.checks.report import Report
from tocsin.checks.values import CheckInputError
from tocsin.checks.weight_sync import weight_sync

Out = Callable[[str], None]
_SAMPLE: Final = {
    "tokens": ("tokens", "token_ids"),
    "sources": ("sources",),
    "attention": ("attention", "attention_mask"),
    "loss": ("loss", "loss_mask", "token_loss_mask", "response_mask"),
}


def check_consistency(given: argparse.Namespace, out: Out) -> bool:
    """`tocsin-check consistency`. True if the check passed."""
    keys = Keys(given.train_key, given.rollout_key, given.mask_key)
    read = read_two(given.train, given.rollout, given.repeat, keys)
    low, high = given.clip
    report = consistency(
        read.a,
        read.b,
        read.c,
        read.mask,
        (low, high),
        healthy=given.healthy,
        stop=given.stop,
        clipped_limit=given.clipped,
        worst=given.worst,
    )
    return _print(report, given.json, out)


def check_accumulation(given: argparse.Namespace, out: Out) -> bool:
    """`tocsin-check accumulation`."""
    one, many = (_tensors(path) for path in (given.one, given.accumulated))
    return _print(accumulation(one, many, given.world_size, given.steps), given.json, out)


def check_weights(given: argparse.Namespace, out: Out) -> bool:
    """`tocsin-check weights`."""
    rename = dict(map(_pair, given.rename))
    source, target = (_state(path) for path in (given.source, given.target))
    report = weight_sync(source, target, rename or None, as_type=given.as_type, ignore=given.ignore)
    return _print(report, given.json, out)


def print_digests(given: argparse.Namespace, out: Out) -> bool:
    """`tocsin-check digests`."""
    out(json.dumps(digests(_tensors(given.state), given.as_type, given.ignore), indent=1))
    return True


def check_masks(given: argparse.Namespace, out: Out) -> bool:
    """`tocsin-check mask`: every sample of the file, and a summary."""
    eos = EOS if given.eos is None else frozenset(given.eos) | {int(token) for token in given.eos if _is_id(token)}
    printed = 0
    reports: list[Report] = []
    for number, row in read_rows(given.samples):
        report = _sample_report(given.samples, number, row, eos, given.process_rewards)
        reports.append(report)
        if not given.json and printed < given.tables and (given.all or not report.passed):
            out(f"{report}\n")
            printed += 1
    if not reports:
        raise FileError(given.samples, "", "holds no samples")
    failed = [report for report in reports if not report.passed]
    if given.json:
        out(
            json.dumps(
                {"check": "mask", "passed": not failed, "samples": [report.plain() for report in reports]}, allow_nan=False
            )
        )
    else:
        out(f"{len(reports) - len(failed):,} of {len(reports):,} samples passed")
    return not failed


def _sample_report(path: Path, number: int, row: Mapping[str, Any], eos: frozenset[Any], process_rewards: bool) -> Report:
    place = f"line {number}"
    values = {}
    for what, names in _SAMPLE.items():
        name = field(row, names)
        if name is None:
            raise FileError(path, place, f"no {what}: expected {' or '.join(names)}")
        if not isinstance(row[name], list):
            raise FileError(path, place, f"{name}: expected a list")
        values[what] = row[name]
    completion, excluded = row.get("completion_tokens"), row.get("excluded", False)
    if not (completion is None or (type(completion) is int and completion >= 0)):
        raise FileError(path, place, f"completion_tokens: expected a whole number, got {completion!r}")
    if type(excluded) is not bool:
        raise FileError(path, place, f"excluded: expected true or false, got {excluded!r}")
    try:
        return mask_table(
            values["tokens"],
            values["sources"],
            values["attention"],
            values["loss"],
            row.get("reward"),
            completion_tokens=completion,
            eos=eos,
            excluded=excluded,
            process_rewards=process_rewards,
            title=str(row["id"]) if "id" in row else f"({place})",
        )
    except CheckInputError as error:
        raise FileError(path, place, str(error)) from None


def _tensors(path: Path) -> Mapping[str, Any]:
    if not is_npz(path):
        raise FileError(path, "", "no .npz file: write numpy.savez(file, **{name: array})")
    return read_npz(path)


def _state(path: Path) -> Mapping[str, Any]:
    return read_npz(path) if is_npz(path) else read_json(path)


def _print(report: Report, as_json: bool, out: Out) -> bool:
    out(json.dumps(report.plain(), allow_nan=False) if as_json else str(report))
    return report.passed


def _pair(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old:
        raise CheckInputError(f"--rename {text!r}: expected OLD=NEW")
    return old, new


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdigit()


COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace, Out], bool]]] = {
    "consistency": check_consistency,
    "accumulation": check_accumulation,
    "mask": check_masks,
    "weights": check_weights,
    "digests": print_digests,
}
