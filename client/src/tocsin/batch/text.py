"""A4: what a reader would see at once in the responses: loops, garbage, templates.

Every measure looks at the same part of the step: of each response at most its first and its last CUT / 2 characters (loops are
at the end), and of the responses, drawn by `seed`, as many as hold TEXT_CHARS characters. So a step costs a fraction of a
second on one core, however large it is. Only the openings are those of all responses.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from tocsin.batch.checked import Checked, Vector
from tocsin.batch.contract import Found
from tocsin.batch.inputs import Settings
from tocsin.batch.ngrams import repeated_share
from tocsin.batch.scripts import code_points, letters_by_script

CUT: Final = 16_384
"""Characters of one response that are looked at."""
TEXT_CHARS: Final = 2 * 1024 * 1024
"""Characters of one step that are looked at, about; one response at least."""
OPENING_CHARS: Final = 32
SAME_RUN: Final = 128
"""One character so many times in a row is no rule under a heading."""
FOREIGN_LETTERS: Final = 3
"""Letters of a script that the prompt does not use; fewer may be a name or a symbol."""
LEVEL: Final = 6
"""Of zlib, as everybody has it by default."""
_ALLOWED_CONTROLS: Final = (9, 10, 13)  # tab, line feed, carriage return


def repetition(checked: Checked, settings: Settings) -> Found:
    """response_repetition_ratio: share of the 4-grams of a response that occurred in it before (1 - distinct / all), mean over
    the responses that have any.

    Of words, that is what stands between white space, and single characters of scripts that use none. 0 = no four words twice;
    a response of n equal words has 1 - 1/(n - 3). No response of four words or more: None.
    """
    shares = [share for text in _looked_at(checked, settings.seed) if (share := repeated_share(text)) is not None]
    return Found({"response_repetition_ratio": sum(shares) / len(shares) if shares else None})


def compression(checked: Checked, settings: Settings) -> Found:
    """response_compression_ratio: bytes of the responses compressed one by one (zlib, level 6) / their bytes in UTF-8.

    Prose has about 0.5 (0.6 in a thousand characters), a loop next to 0, noise up to 0.8; above 1 only a few characters. Long
    responses weigh more. No character: None.
    """
    packed = raw = 0
    for text in _looked_at(checked, settings.seed):
        data = text.encode("utf-8", "surrogatepass")
        if data:
            packed += len(zlib.compress(data, LEVEL))
            raw += len(data)
    return Found({"response_compression_ratio": packed / raw if raw else None})


def garbled(checked: Checked, settings: Settings) -> Found:
    """response_garbled_ratio: share of the responses that hold any of

    - a replacement character (U+FFFD), half a surrogate pair, or a control character other than tab and line ends
    - one and the same character SAME_RUN times in a row
    - FOREIGN_LETTERS letters of a script that their prompt does not use at all (needs `prompt_texts`; `skipped` says when they
      are missing). Latin and Greek are used everywhere and never foreign; an answer in another script that was asked for
      counts too, so on translation tasks look at the change

    No response: None.
    """
    samples = checked.samples
    chosen = _chosen(samples.responses or (), settings.seed)
    responses = [_cut((samples.responses or ())[at]) for at in chosen]
    prompts = None if samples.prompt_texts is None else [samples.prompt_texts[at] for at in chosen]
    found = Found()
    bad = 0
    for at, text in enumerate(responses):
        bad += is_garbled(text, None if prompts is None else prompts[at])
    if prompts is None:
        found.skipped["response_garbled_ratio"] = "without prompt_texts: foreign scripts are not looked for"
    found.metrics["response_garbled_ratio"] = bad / len(responses) if responses else None
    return found


def opening(checked: Checked, settings: Settings) -> Found:
    """response_opening_share: largest share of the responses that begin with the same OPENING_CHARS characters.

    White space before them does not count, and a run of it counts as one space. A response that is shorter has all of itself as
    its opening. Chance is small, not 1/S: every model has its habits, so look at the change. No response: None.
    """
    responses = checked.samples.responses
    if not responses:
        return Found({"response_opening_share": None})
    openings = Counter(map(opening_of, responses))
    return Found({"response_opening_share": openings.most_common(1)[0][1] / len(responses)})


def is_garbled(text: str, prompt: str | None) -> bool:
    """Whether one response holds any of what `garbled` counts; None for the prompt: foreign scripts are not looked for."""
    points = code_points(text)
    return _damaged(points) or _one_repeated(points) or (prompt is not None and _foreign(points, prompt))


def opening_of(text: str) -> str:
    """How a response begins: OPENING_CHARS characters, white space before them left out and a run of it as one space."""
    return " ".join(text[: 4 * OPENING_CHARS].split())[:OPENING_CHARS]


def _chosen(texts: Sequence[str], seed: int) -> list[int]:
    """Indices of the responses that are looked at, in order."""
    if sum(min(len(text), CUT) for text in texts) <= TEXT_CHARS:
        return list(range(len(texts)))
    found = []
    room = TEXT_CHARS
    for at in random.Random(seed).sample(range(len(texts)), len(texts)):
        found.append(at)
        room -= min(len(texts[at]), CUT)
        if room <= 0:
            break
    return sorted(found)


def _cut(text: str) -> str:
    return text if len(text) <= CUT else text[: CUT // 2] + text[-CUT // 2 :]


def _looked_at(checked: Checked, seed: int) -> list[str]:
    texts = checked.samples.responses or ()
    return [_cut(texts[at]) for at in _chosen(texts, seed)]


def _damaged(points: Vector) -> bool:
    control = (points < 32) | ((points >= 127) & (points < 160))
    for allowed in _ALLOWED_CONTROLS:
        control &= points != allowed
    return bool((control | (points == 0xFFFD) | ((points >= 0xD800) & (points < 0xE000))).any())


def _one_repeated(points: Vector) -> bool:
    if len(points) < SAME_RUN:
        return False
    changes = np.flatnonzero(np.diff(points))
    ends = np.concatenate(([-1], changes, [len(points) - 1]))
    return bool(np.diff(ends).max() >= SAME_RUN)


def _foreign(points: Vector, prompt: str) -> bool:
    letters = letters_by_script(points)
    if not (letters >= FOREIGN_LETTERS).any():
        return False
    return bool(((letters >= FOREIGN_LETTERS) & (letters_by_script(code_points(prompt)) == 0)).any())
