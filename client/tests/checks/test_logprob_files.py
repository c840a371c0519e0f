"""Saved logprobs: each form that is read, and each fault with its place."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tocsin.checks import CheckInputError
from tocsin.checks.files import FileError, read_rows
from tocsin.checks.logprob_files import Compared, Keys, read_two

Array = NDArray[Any]
A = [[-1.0, -2.0, -3.0], [-4.0, -5.0]]
C = [[-1.5, -2.5, -3.5], [-4.5, -5.5]]
MASK = [[0, 1, 1], [1, 1]]


def rows(path: Path, *columns: dict[str, Any]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in columns))
    return path


def both(path: Path, train: str, rollout: str, mask: str) -> Path:
    return rows(path, *({train: a, rollout: c, mask: m} for a, c, m in zip(A, C, MASK, strict=True)))


def is_right(read: Compared) -> bool:
    """The logprobs above, and the mask of those above."""
    mask = np.array([[False, True, True], [True, True, False]])
    assert read.mask.tolist() == mask.tolist()
    assert read.a[mask].tolist() == [-2.0, -3.0, -4.0, -5.0]
    assert read.c[mask].tolist() == [-2.5, -3.5, -4.5, -5.5]
    return True


@pytest.mark.parametrize(
    ("train", "rollout", "mask"),
    [
        ("old_log_probs", "rollout_log_probs", "response_mask"),
        ("prev_logprobs", "generation_logprobs", "token_loss_mask"),
        ("train", "rollout", "mask"),
        ("trainer", "rollout", "loss_mask"),
        ("old_per_token_logps", "sampling_per_token_logps", "completion_mask"),
        ("prox_logp", "logprobs", "loss_mask"),
        ("log_probs", "rollout_log_probs", "loss_mask"),
    ],
)
def test_one_file_with_both_sides(tmp_path: Path, train: str, rollout: str, mask: str) -> None:
    path = both(tmp_path / "dump.jsonl", train, rollout, mask)
    read = read_two(path, None, None, Keys())
    assert is_right(read)
    assert read.b is None
    packed = tmp_path / "dump.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert is_right(read_two(packed, None, None, Keys()))


def test_a_dump_of_nemo_rl(tmp_path: Path) -> None:
    """Each line is a batch of one, and the sample mask leaves out whole responses."""
    lines = [
        {
            "content": ["."], "rewards": [1.0], "input_lengths": [3], "token_ids": [[7, 8, 9]], "token_loss_mask": [[0, 1, 1]],
            "sample_loss_mask": [kept], "advantages": [[0.0, 0.1, 0.1]], "generation_logprobs": [[0.0, -2.5, -3.5]],
            "prev_logprobs": [[0.0, -2.0, -3.0]], "idx": index,
        }
        for index, kept in enumerate([1.0, 0.0])
    ]  # fmt: skip
    read = read_two(rows(tmp_path / "train_data_step7.jsonl", *lines), None, None, Keys())
    assert read.mask.tolist() == [[False, True, True], [False, False, False]]
    assert (read.a[0, 1:] - read.c[0, 1:]).tolist() == [0.5, 0.5]


def test_two_files_of_one_side_each_and_a_repetition(tmp_path: Path) -> None:
    train = rows(tmp_path / "a.jsonl", *({"logprobs": a, "mask": m} for a, m in zip(A, MASK, strict=True)))
    again = rows(tmp_path / "b.jsonl", *({"logprobs": a} for a in A))
    rollout = rows(tmp_path / "c.jsonl", *({"logprobs": c} for c in C))
    read = read_two(train, rollout, again, Keys())
    assert is_right(read)
    assert read.b is not None
    assert read.b[read.mask].tolist() == read.a[read.mask].tolist()


def test_each_file_of_two_gives_its_own_side(tmp_path: Path) -> None:
    """Two dumps that both hold both sides: the trainer's values come from the first, the engine's from the second."""
    first = rows(tmp_path / "a.jsonl", {"old_log_probs": [-1.0], "rollout_log_probs": [-9.0]})
    second = rows(tmp_path / "b.jsonl", {"old_log_probs": [-8.0], "rollout_log_probs": [-2.0]})
    read = read_two(first, second, None, Keys())
    assert (read.a.tolist(), read.c.tolist()) == ([[-1.0]], [[-2.0]])


def test_masks_of_all_files_apply_together(tmp_path: Path) -> None:
    train = rows(tmp_path / "a.jsonl", {"logprobs": [-1.0] * 4, "mask": [1, 1, 0, 1]})
    rollout = rows(tmp_path / "c.jsonl", {"logprobs": [-1.0] * 4, "response_mask": [1, 0, 1, 1]})
    again = rows(tmp_path / "b.jsonl", {"logprobs": [-1.0] * 4, "sample_loss_mask": 1, "mask": [1, 1, 1, 0]})
    assert read_two(train, rollout, again, Keys()).mask.tolist() == [[True, False, False, False]]


def test_npz(tmp_path: Path) -> None:
    a, c, mask = np.array([[-1.0, -2.0]] * 3), np.array([[-1.5, -2.5]] * 3), np.array([[1, 0]] * 3)
    path = tmp_path / "both.npz"
    np.savez(path, train=a, rollout=c, again=a, mask=mask, sample_loss_mask=np.array([1, 0, 1]))
    read = read_two(path, None, None, Keys())
    assert read.mask.tolist() == [[True, False], [False, False], [True, False]]
    assert read.b is not None
    assert (read.a.tolist(), read.b.tolist(), read.c.tolist()) == (a.tolist(), a.tolist(), c.tolist())
    one, two = tmp_path / "a.npz", tmp_path / "c.npz"
    np.savez_compressed(one, logprobs=a.astype(np.float16)[0], response_mask=mask[0])
    np.savez(two, logprobs=c[0])
    assert read_two(one, two, None, Keys()).mask.tolist() == [[True, False]]


def test_an_npz_against_json_lines(tmp_path: Path) -> None:
    one = tmp_path / "a.npz"
    np.savez(one, logprobs=np.array([[-1.0, -2.0]]))
    two = rows(tmp_path / "c.jsonl", {"logprobs": [-1.5, -2.5]})
    assert read_two(one, two, None, Keys()).c.tolist() == [[-1.5, -2.5]]


def test_names_given_by_hand(tmp_path: Path) -> None:
    path = rows(tmp_path / "x.jsonl", {"mine": [-1.0, -2.0], "theirs": [-1.0, -3.0], "seen": [1, 0], "mask": [0, 0]})
    read = read_two(path, None, None, Keys("mine", "theirs", "seen"))
    assert (read.c.tolist(), read.mask.tolist()) == ([[-1.0, -3.0]], [[True, False]])


def test_a_name_given_by_hand_settles_whose_logprobs_they_are(tmp_path: Path) -> None:
    path = rows(tmp_path / "x.jsonl", {"logprobs": [-1.0], "log_probs": [-2.0]})
    assert read_two(path, None, None, Keys(rollout="log_probs")).c.tolist() == [[-2.0]]
    with pytest.raises(FileError, match="no logprobs of the rollout"):
        read_two(path, None, None, Keys(rollout="logprobs"))  # the trainer's too, and a file agrees with itself


def test_null_is_a_logprob_that_is_not_there(tmp_path: Path) -> None:
    path = rows(tmp_path / "x.jsonl", {"train": [-1.0, None], "rollout": [-1.0, math.nan]})
    read = read_two(path, None, None, Keys())
    assert np.isnan(read.a[0, 1])
    assert read.mask.all()


def test_tokens_tell_whether_the_files_belong_together(tmp_path: Path) -> None:
    one = rows(tmp_path / "a.jsonl", {"logprobs": [-1.0, -2.0], "mask": [0, 1], "token_ids": [5, 6]})
    for ids, fits in ([5, 6], True), ([4, 6], True), ([5, 7], False):
        two = rows(tmp_path / "c.jsonl", {"logprobs": [-1.0, -2.0], "response_tokens": ids})
        if fits:  # what the mask leaves out may differ: padding does
            assert read_two(one, two, None, Keys()).mask.tolist() == [[False, True]]
            continue
        with pytest.raises(FileError, match=r"c.jsonl, line 1: token 1 is 7, but 6 in .*a.jsonl, line 1: not the same tokens"):
            read_two(one, two, None, Keys())


GOOD = '{"train": [-1.0], "rollout": [-1.0]}\n'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (GOOD + "not json\n", r"x.jsonl, line 2: no JSON: Expecting value"),
        (GOOD + "\n" + '{"train": [-1.0], "ro', r"x.jsonl, line 3: no JSON"),
        (GOOD + "[1]\n", r"x.jsonl, line 2: a JSON list instead of an object"),
        ("[" * 100_000, r"x.jsonl, line 1: (JSON that is nested too deeply|no JSON)"),
        (
            '{"train": [-1.0]}',
            r"line 1: no logprobs of the rollout: expected one of rollout, rollout_log_probs, .*; there is train",
        ),
        ('{"logprobs": [-1.0]}', r"line 1: no logprobs of the rollout: expected one of rollout, .*; there is logprobs"),
        ('{"logprobs": [-1.0], "log_probs": [-1.0]}', r"line 1: no logprobs of the rollout"),
        ('{"rollout": [-1.0]}', r"line 1: no logprobs of the trainer: expected one of train, .*; there is rollout"),
        ("{}", r"line 1: no logprobs of the trainer: .*; there is nothing"),
        ('{"train": [-1.0, -2.0], "rollout": [-1.0]}', r"line 1: 1 values in rollout, but 2 in train"),
        ('{"train": [-1.0], "rollout": [-1.0], "mask": [1, 1]}', r"line 1: 2 values in mask, but 1 in train"),
        ('{"train": [-1.0], "rollout": ["x"]}', r"line 1, rollout: values: expected numbers"),
        ('{"train": -1.0, "rollout": [-1.0]}', r"line 1, train: expected a list of numbers, got shape \(\)"),
        ('{"train": [[-1.0], [-2.0]], "rollout": [-1.0]}', r"line 1, train: expected a list of numbers, got shape \(2, 1\)"),
        ('{"train": [[-1.0], -2.0], "rollout": [-1.0]}', r"line 1, train: values: not an array of numbers"),
        ('{"train": [-1.0], "rollout": [-1.0], "mask": [NaN]}', r"line 1, mask: a mask that holds NaN"),
        ('{"train": [-1.0], "rollout": [-1.0], "sample_loss_mask": [1, 1]}', r"line 1: 2 values in sample_loss_mask"),
        ('{"train": [-1.0], "rollout": [-1.0], "mask": [0]}', r"x.jsonl: no token to compare: the mask is empty"),
        ("", r"x.jsonl: holds no responses"),
        ("\n\n", r"x.jsonl: holds no responses"),
    ],
)
def test_json_lines_that_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(FileError, match=message):
        read_two(path, None, None, Keys())


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train": np.zeros((2, 3))}, r"no logprobs of the rollout"),
        ({"train": np.zeros((2, 3)), "rollout": np.zeros((2, 4))}, r"key 'rollout': shape \(2, 4\), but 'train' has \(2, 3\)"),
        ({"train": np.zeros((2, 3)), "rollout": np.zeros((2, 3)), "mask": np.ones(2)}, r"key 'mask': shape \(1, 2\)"),
        ({"train": np.zeros((2, 3, 1)), "rollout": np.zeros((2, 3))}, r"key 'train': expected .* got shape \(2, 3, 1\)"),
        ({"train": np.array(["x"]), "rollout": np.zeros((2, 3))}, r"key 'train': train: expected numbers"),
        ({"train": np.array([None, {}]), "rollout": np.zeros(2)}, r"key 'train': cannot be read as .npz: Object arrays"),
        ({"train": np.zeros((2, 3)), "rollout": np.zeros((2, 3)), "sample_loss_mask": np.ones(3)}, r"3 values for 2 rows"),
        ({"train": np.zeros((2, 3)), "rollout": np.zeros((2, 3)), "mask": np.full((2, 3), np.nan)}, r"a mask that holds NaN"),
        ({"train": np.zeros((0, 3)), "rollout": np.zeros((0, 3))}, r"holds no responses"),
        ({}, r"no logprobs of the trainer"),
    ],
)
def test_npz_that_cannot_be_used(tmp_path: Path, arrays: dict[str, Array], message: str) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]  # numpy's stubs take a keyword for allow_pickle
    with pytest.raises(FileError, match=message):
        read_two(path, None, None, Keys())


def test_other_files(tmp_path: Path) -> None:
    good = rows(tmp_path / "good.jsonl", {"train": [-1.0], "rollout": [-1.0]})
    with pytest.raises(FileError, match=r"nowhere.npz: No such file"):
        read_two(tmp_path / "nowhere.npz", None, None, Keys())
    with pytest.raises(FileError, match=r"nowhere.jsonl: No such file"):
        read_two(good, tmp_path / "nowhere.jsonl", None, Keys())
    with pytest.raises(FileError, match="Is a directory"):
        read_two(tmp_path, None, None, Keys())
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(FileError, match=r"x.npy: a .npy file holds one array without a name"):
        read_two(tmp_path / "x.npy", None, None, Keys())
    broken = tmp_path / "broken.npz"
    np.savez(broken, train=np.zeros(300), rollout=np.zeros(300))
    broken.write_bytes(broken.read_bytes()[:-100])
    with pytest.raises(FileError, match=r"broken.npz: cannot be read as .npz"):
        read_two(broken, None, None, Keys())
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(GOOD.encode() * 1000)[:-20])
    with pytest.raises(FileError, match=r"cut.jsonl.gz, line \d+: the compressed data end here"):
        read_two(cut, None, None, Keys())


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    one = rows(tmp_path / "a.jsonl", {"logprobs": [-1.0, -2.0]}, {"logprobs": [-1.0]})
    two = rows(tmp_path / "c.jsonl", {"logprobs": [-1.0, -2.0]})
    with pytest.raises(FileError, match=r"c.jsonl: 1 responses, but .*a.jsonl has 2"):
        read_two(one, two, None, Keys())
    three = rows(tmp_path / "d.jsonl", {"logprobs": [-1.0, -2.0]}, {"logprobs": [-1.0, -2.0]})
    with pytest.raises(FileError, match=r"d.jsonl, line 2: 2 logprobs, but .*a.jsonl, line 2 has 1"):
        read_two(one, three, None, Keys())
    with pytest.raises(FileError, match=r"a.jsonl, line 1: no mask under 'seen'"):
        read_two(one, one, None, Keys(mask="seen"))
    with pytest.raises(FileError, match=r"no logprobs of the rollout: expected one of rollout,"):
        read_two(one, None, None, Keys())


def test_a_line_may_be_long(tmp_path: Path) -> None:
    """Longer than a record of Tocsin may be: 32k tokens with four lists are some megabytes."""
    values = [-1.0 / 3] * 300_000
    path = rows(tmp_path / "long.jsonl", {"train": values, "rollout": values})
    assert path.stat().st_size > 8_000_000
    assert read_two(path, None, None, Keys()).mask.sum() == 300_000


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=8,
)
NAMES = st.sampled_from(["train", "rollout", "mask", "sample_loss_mask", "token_ids", "logprobs", "again"])


@settings(max_examples=200)
@given(st.lists(st.dictionaries(NAMES, st.one_of(VALUES, st.lists(st.floats(), max_size=3)), max_size=6), max_size=3))
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]]) -> None:
    path = rows(tmp_path_factory.mktemp("any") / "x.jsonl", *lines)
    try:
        read = read_two(path, None, None, Keys())
    except CheckInputError as error:
        assert str(path) in str(error)
    else:
        assert read.a.shape == read.c.shape == read.mask.shape


@settings(max_examples=100)
@given(
    st.one_of(st.binary(max_size=200), st.binary(max_size=100).map(gzip.compress), st.binary().map(lambda b: b"PK\x03\x04" + b))
)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(content)
    with pytest.raises(FileError):
        read_two(path, None, None, Keys())


def test_blank_lines_count_as_lines(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('\n{"a": 1}\n\n{"a": 2}')
    assert [number for number, _ in read_rows(path)] == [2, 4]
