"""Every measure there is, as literal lists: to add one, write its file and its test, and put it here.

Token measures share one pass over the blocks of the batch; sample measures look at whole responses and single numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tocsin.batch import diversity, groups, lengths, numbers, optimiser, rewards, text
from tocsin.batch.advantage_groups import advantage_groups
from tocsin.batch.advantages import Advantages, RawAdvantages
from tocsin.batch.checked import Checked
from tocsin.batch.clipping import Clipping
from tocsin.batch.contract import Found, TokenMeasure
from tocsin.batch.critic import ValueClip, ValueFit
from tocsin.batch.entropy import Entropy
from tocsin.batch.first_minibatch import FirstMinibatch
from tocsin.batch.importance import ImportanceWeights
from tocsin.batch.inputs import Settings
from tocsin.batch.mismatch import Mismatch, Perplexity
from tocsin.batch.numbers import NonFiniteTokens
from tocsin.batch.reference_kl import ReferenceKl
from tocsin.batch.rejection import Rejection
from tocsin.batch.update import PolicyRatio


class Sample(NamedTuple):
    """A measure that is a function of the checked batch."""

    name: str
    needs: tuple[str, ...]
    """Fields of `Batch`, all of which must be there."""
    compute: Callable[[Checked, Settings], Found]
    uses: tuple[str, ...] = ()
    """Fields that it can do without: a NaN in one of them, or in `needs`, justifies a NaN in its results."""


TOKEN_MEASURES: Final[tuple[type[TokenMeasure], ...]] = (
    Mismatch,
    Perplexity,
    ImportanceWeights,
    Rejection,
    FirstMinibatch,
    PolicyRatio,
    Clipping,
    ReferenceKl,
    Advantages,
    RawAdvantages,
    ValueFit,
    ValueClip,
    Entropy,
    NonFiniteTokens,
)
SAMPLE_MEASURES: Final[tuple[Sample, ...]] = (
    Sample("advantage_groups", (), advantage_groups, ("advantages", "raw_advantages", "rewards", "prompts", "kept")),
    Sample("gradients", ("grad_norms",), optimiser.gradients, ("grad_norms_clipped",)),
    Sample("parameter_update", ("param_norm", "param_update_norm"), optimiser.parameter_update),
    Sample("critic_loss", ("critic_loss",), optimiser.critic_loss),
    Sample("nll_loss", ("nll_loss",), optimiser.nll_loss),
    Sample("mtp_loss", ("mtp_loss",), optimiser.mtp_loss),
    Sample("reuse_epochs", (), optimiser.reuse),
    Sample("reward_groups", ("rewards", "prompts"), groups.reward_groups),
    Sample("correct_groups", ("correct", "prompts"), groups.correct_groups),
    Sample("group_counts", ("prompts",), groups.group_counts, ("kept",)),
    Sample("groups", ("prompts",), groups.groups_block, ("rewards", "correct")),
    Sample("rewards", ("rewards",), rewards.rewards),
    Sample("correctness", ("correct",), rewards.correctness),
    Sample("components", ("components",), rewards.components),
    Sample("domains", ("rewards", "domains"), rewards.domains),
    Sample("unique", (), diversity.unique, ("responses", "token_ids")),
    Sample("edit_distance", ("prompts",), diversity.edit_distance, ("responses", "token_ids")),
    Sample("retrieval", ("retrieval_scores", "retrieval_own"), diversity.retrieval),
    Sample("lengths", ("response_lengths",), lengths.lengths),
    Sample("lengths_by_correctness", ("response_lengths", "correct"), lengths.lengths_by_correctness),
    Sample("truncation", (), lengths.truncation, ("truncated", "response_lengths")),
    Sample("repetition", ("responses",), text.repetition),
    Sample("compression", ("responses",), text.compression),
    Sample("garbled", ("responses",), text.garbled, ("prompt_texts",)),
    Sample("opening", ("responses",), text.opening),
    Sample("loss_mask", (), numbers.loss_mask, ("loss_mask", "completion_tokens")),
    Sample("nonfinite_loss", ("loss",), numbers.nonfinite_loss),
    Sample("nonfinite_grad", (), numbers.nonfinite_grad, ("grads", "grad_norms")),
)
