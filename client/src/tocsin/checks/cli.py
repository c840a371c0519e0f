"""The command `tocsin-check`: the checks of this package on files."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

PASSED: Final = 0
FAILED: Final = 1
UNUSABLE: Final = 2
"""The command line or a file is wrong; argparse ends with the same."""
_EPILOG: Final = """\
examples:
  The logprobs of one batch, saved by the trainer and by the rollout engine with unchanged weights:
      tocsin-check consistency trainer.npz engine.npz --repeat trainer-again.npz
  NeMo RL's dump holds both sides:
      tocsin-check consistency logs/exp_001/train_data_step1.jsonl
  The gradient of one batch of 8 against 8 accumulated batches of 1 on 2 ranks:
      tocsin-check accumulation one-batch.npz accumulated.npz --steps 8 --world-size 2
  The masks of a few samples, token by token:
      tocsin-check mask samples.jsonl
  The weights of the trainer against those of the engine; digests are small enough to copy from another machine:
      tocsin-check digests trainer.npz --as-type bfloat16 > trainer.json
      tocsin-check weights trainer.json engine.json --rename module.=

exit status: 0 passed; 1 a check failed; 2 the command line or a file is wrong (one line on stderr says what and where).
"""
_CONSISTENCY: Final = """\
Compare the logprobs that trainer and rollout engine give to the same tokens under the same weights.

A and B are the trainer's, C the engine's; A=B tests that the trainer repeats itself, A=C that the engines agree.

files, told apart by their content (gzip is opened):
  .npz    arrays [responses, positions]
  .jsonl  one response a line, with lists; NeMo RL's lists of one list are unwrapped

names, the first that is there:
  trainer         train, trainer, old_log_probs, prev_logprobs, old_per_token_logps, prox_logp, logprobs, log_probs
  engine          rollout, rollout_log_probs, generation_logprobs, sampling_per_token_logps, logprobs, log_probs
  trainer again   again (or a file of its own: --repeat)
  mask            mask, response_mask, token_loss_mask, completion_mask, loss_mask; without one every position counts
  whole rows      sample_loss_mask
  tokens          token_ids, tokens, response_tokens; where both files have them they must be the same

verl's rollout dumps hold no logprobs: write old_log_probs, rollout_log_probs and response_mask of the batch as JSON lines.
"""
_CONSISTENCY_EPILOG: Final = """\
examples:
      tocsin-check consistency trainer.npz engine.npz
      tocsin-check consistency batch.jsonl.gz --clip 0.2 0.28
      tocsin-check consistency trainer.npz engine.npz --healthy 0.006 --stop 0.02 --json
"""
_MASK: Final = """\
Lay out samples token by token and check their masks. FILE holds one sample a line:

  {"tokens": ["Hi", "!", "<|im_end|>"], "sources": ["prompt", "policy", "policy"], "attention": [1, 1, 1], "loss": [0, 1, 1],
   "reward": [0, 0, 1]}

tokens may be texts or ids (also named token_ids); sources are prompt, policy, tool or pad; attention and loss may be named
attention_mask and loss_mask, token_loss_mask or response_mask. Optional: reward, completion_tokens (how many tokens the
trainer says it trained), excluded (true: left out of the loss on purpose), id (shown in the table).
"""
_WEIGHTS: Final = """\
Compare weights by value, tensor by tensor; bfloat16 and float32 of the same numbers are equal.

A file is an .npz with the tensors by name, or a JSON object of digests by name: `tocsin-check digests` prints one, and
`json.dump(tocsin.checks.digests(state_dict), file)` writes one where the weights are. Digests tell that a tensor differs and
which is the first; how far it is off needs the tensors on both sides.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    raw = argparse.RawDescriptionHelpFormatter
    made = argparse.ArgumentParser(
        prog="tocsin-check",
        description="Check what RL training rests on: probabilities, gradients, masks, weights.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    kinds = made.add_subparsers(dest="check", required=True, metavar="CHECK")
    one = kinds.add_parser(
        "consistency", help="logprobs of trainer and rollout engine", description=_CONSISTENCY, epilog=_CONSISTENCY_EPILOG,
        formatter_class=raw,
    )  # fmt: skip
    one.add_argument("train", type=Path, metavar="TRAIN", help="logprobs of the trainer (A), or of both sides")
    one.add_argument(
        "rollout", type=Path, metavar="ROLLOUT", nargs="?", help="logprobs of the engine (C), if TRAIN has them not"
    )
    one.add_argument("--repeat", type=Path, metavar="TRAIN2", help="a second evaluation by the trainer (B)")
    one.add_argument("--clip", type=float, nargs=2, default=[0.2, 0.28], metavar=("LOW", "HIGH"), help="clip range (0.2 0.28)")
    one.add_argument("--healthy", type=float, default=0.001, metavar="GAP", help="mean |l| of a run that you trust (0.001)")
    one.add_argument("--stop", type=float, default=0.01, metavar="GAP", help="mean |l| from which the check fails (0.01)")
    one.add_argument("--clipped", type=float, default=0.001, metavar="SHARE", help="share of clipped tokens allowed (0.001)")
    one.add_argument("--worst", type=_count, default=10, metavar="N", help="how many of the worst tokens to list (10)")
    for side in ("train", "rollout", "mask"):
        one.add_argument(f"--{side}-key", metavar="NAME", help=f"name of the {side} values, if it is none of the above")
    two = kinds.add_parser("accumulation", help="gradient of one batch against accumulated ones", formatter_class=raw)
    two.add_argument("one", type=Path, metavar="ONE.npz", help="gradients of one batch, by parameter name")
    two.add_argument("accumulated", type=Path, metavar="ACCUMULATED.npz", help="gradients of the same data, accumulated")
    two.add_argument("--world-size", type=_count, default=1, metavar="N", help="ranks that were reduced over (1)")
    two.add_argument("--steps", type=_count, default=1, metavar="N", help="backward passes that were accumulated (1)")
    three = kinds.add_parser("mask", help="attention and loss masks of samples", description=_MASK, formatter_class=raw)
    three.add_argument("samples", type=Path, metavar="FILE.jsonl", help="one sample a line")
    three.add_argument(
        "--eos", action="append", metavar="TOKEN", help="text or id of a token that ends a turn (may be repeated)"
    )
    three.add_argument("--process-rewards", action="store_true", help="rewards may stand on any policy token")
    three.add_argument("--all", action="store_true", help="print the tables of samples that passed, too")
    three.add_argument("--tables", type=_count, default=5, metavar="N", help="print at most so many tables (5)")
    four = kinds.add_parser(
        "weights", help="weights of the trainer against the engine's", description=_WEIGHTS, formatter_class=raw
    )
    four.add_argument("source", type=Path, metavar="SOURCE", help="the trainer's: .npz, or JSON of digests")
    four.add_argument("target", type=Path, metavar="TARGET", help="the engine's: .npz, or JSON of digests")
    four.add_argument("--rename", action="append", default=[], metavar="OLD=NEW", help="replace a prefix of the source's names")
    five = kinds.add_parser("digests", help="print the digests of an .npz file as JSON", formatter_class=raw)
    five.add_argument("state", type=Path, metavar="STATE.npz", help="tensors by name")
    for command in (four, five):
        command.add_argument("--ignore", action="append", default=[], metavar="PATTERN", help="names to leave out")
        command.add_argument("--as-type", choices=["float32", "bfloat16", "float16"], help="round floats to this type first")
    for command in (one, two, three, four):
        command.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    try:
        return run(argv, out=_print, err=_complain)
    except BrokenPipeError:  # `| head` has seen enough
        with contextlib.suppress(OSError):  # then the interpreter complains at its end, which harms nothing
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def run(argv: Sequence[str] | None, *, out: Callable[[str], None], err: Callable[[str], None]) -> int:
    """The command with its outputs as parameters. SystemExit for a wrong command line, as argparse does."""
    given = parser().parse_args(argv)
    try:
        from tocsin.checks import commands
        from tocsin.checks.values import CheckInputError
    except ModuleNotFoundError as missing:
        if missing.name != "numpy":
            raise
        err("numpy is not installed: pip install tocsin[batch]")
        return UNUSABLE
    try:
        return PASSED if commands.COMMANDS[given.check](given, out) else FAILED
    except CheckInputError as error:
        err(" ".join(str(error).split()))
        return UNUSABLE


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 1")
    return number


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"tocsin-check: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
