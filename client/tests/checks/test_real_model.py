"""The checks on a real model: a small Llama as trainer, its own generation (key-value cache, sampling) as rollout engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tocsin.checks import Report, accumulation, consistency, mask_table, weight_sync

torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
transformers = pytest.importorskip("transformers", reason="transformers is an optional peer of the client")

PROMPT, RESPONSE, ROWS, WORDS, EOS, PAD = 6, 48, 12, 96, 2, 0
TEMPERATURE = 0.7


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Any:
    """Two layers with random weights, sharp enough that its tokens have very different probabilities."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=PROMPT + RESPONSE, attention_dropout=0.1, initializer_range=0.2,
        bos_token_id=1, eos_token_id=EOS, pad_token_id=PAD,
    )  # fmt: skip
    made = transformers.LlamaForCausalLM(config).eval()
    with torch.no_grad():
        made.lm_head.weight.mul_(2)
    return made


class Rollout:
    """Tokens that the engine sampled, and the logprobs that it returned with them."""

    def __init__(self, model: Any, **sampling: Any) -> None:
        torch.manual_seed(1)
        prompts = torch.randint(3, WORDS, (ROWS, PROMPT))
        out = model.generate(
            prompts, attention_mask=torch.ones_like(prompts), do_sample=True, max_new_tokens=RESPONSE, top_k=0, use_cache=True,
            return_dict_in_generate=True, output_scores=True, output_logits=True, **sampling,
        )  # fmt: skip
        self.tokens = out.sequences
        self.response = self.tokens[:, PROMPT:]
        ended = (self.response == EOS).int().cumsum(1)
        self.mask = (ended == 0) | ((ended == 1) & (self.response == EOS))
        self.sampled_from = self.of(torch.stack(out.scores, dim=1))
        self.unscaled = self.of(torch.stack(out.logits, dim=1))

    def of(self, logits: Any) -> Any:
        """[rows, RESPONSE] logprobs of the response's tokens under [rows, RESPONSE, words] logits."""
        return torch.log_softmax(logits.float(), -1).gather(-1, self.response[..., None])[..., 0]

    def trainer(self, model: Any, temperature: float = TEMPERATURE, shift: int = 1) -> Any:
        """The same by one forward pass over the whole sequence."""
        with torch.no_grad():
            logits = model(self.tokens).logits
        return self.of(logits[:, PROMPT - shift : PROMPT - shift + RESPONSE] / temperature)


@pytest.fixture(scope="module")
def rollout(model: Any) -> Rollout:
    return Rollout(model, temperature=TEMPERATURE)


def causes(report: Report) -> list[str]:
    return [hint.cause for hint in report.hints]


def test_a_model_agrees_with_its_own_generation(model: Any, rollout: Rollout) -> None:
    a, b = rollout.trainer(model), rollout.trainer(model)
    report = consistency(a, b, rollout.sampled_from, rollout.mask)
    assert report.passed
    assert (report.warnings, report.hints) == ((), ())
    assert 0 <= report.numbers["A=C.mean"] < 1e-5  # type: ignore[operator]  # tokens were compared
    assert report.numbers["A=C.tokens"] == int(rollout.mask.sum())


def test_the_temperature_left_out_by_the_trainer(model: Any, rollout: Rollout) -> None:
    report = consistency(rollout.trainer(model, 1.0), None, rollout.sampled_from, rollout.mask)
    assert not report.passed
    assert causes(report) == ["temperature"]


def test_the_temperature_left_out_by_the_engine(model: Any, rollout: Rollout) -> None:
    report = consistency(rollout.trainer(model), None, rollout.unscaled, rollout.mask)
    assert not report.passed
    assert causes(report) == ["temperature"]


def test_logprobs_that_are_not_shifted(model: Any, rollout: Rollout) -> None:
    """Logits at t predict token t + 1: taking them at t gives each token its successor's distribution, which is no shift of
    the right logprobs, so the check must fail without a made-up cause."""
    report = consistency(rollout.trainer(model, shift=0), None, rollout.sampled_from, rollout.mask)
    assert not report.passed
    assert "shift" not in causes(report)
    moved = torch.nn.functional.pad(rollout.trainer(model)[:, 1:], (0, 1), value=-1e9)
    assert causes(consistency(moved, None, rollout.sampled_from, rollout.mask & (moved > -1e8))) == ["shift"]


def test_logprobs_after_top_p(model: Any) -> None:
    rollout = Rollout(model, temperature=1.0, top_p=0.9)
    report = consistency(rollout.trainer(model, 1.0), None, rollout.sampled_from, rollout.mask)
    assert causes(report) == ["truncation"]
    assert consistency(rollout.trainer(model, 1.0), None, rollout.unscaled, rollout.mask).passed


def test_dropout_left_on(model: Any, rollout: Rollout) -> None:
    model.train()
    try:
        a, b = rollout.trainer(model), rollout.trainer(model)
    finally:
        model.eval()
    report = consistency(a, b, rollout.sampled_from, rollout.mask)
    assert "not_repeatable" in causes(report)


def test_a_copy_in_bfloat16_is_told_from_another_model(model: Any, rollout: Rollout) -> None:
    narrow = transformers.LlamaForCausalLM(model.config).eval()
    narrow.load_state_dict(model.state_dict())
    narrow.to(torch.bfloat16)
    report = consistency(rollout.trainer(model), None, rollout.trainer(narrow), rollout.mask)
    assert 0.001 < report.numbers["A=C.mean"] < 0.3  # type: ignore[operator]  # tokens were compared
    assert set(causes(report)) <= {"grows", "few_rows"}, "noise has no cause"
    wrong = weight_sync(model.state_dict(), narrow.state_dict())
    assert causes(wrong) == ["rounding"]
    assert weight_sync(model.state_dict(), narrow.state_dict(), as_type="bfloat16").passed


def test_a_layer_that_was_not_sent(model: Any) -> None:
    engine = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    engine["model.layers.1.mlp.up_proj.weight"] *= 0.999
    report = weight_sync(model.state_dict(), engine)
    assert report.names["differing"] == ("model.layers.1.mlp.up_proj.weight",)


def gradients(model: Any, rollout: Rollout, rows: list[slice], divide: bool, own_tokens: bool) -> dict[str, Any]:
    """Accumulate the token-mean negative logprob of these parts of the batch."""
    model.zero_grad()
    for part in rows:
        logits = model(rollout.tokens[part]).logits[:, PROMPT - 1 : -1]
        logprobs = torch.log_softmax(logits, -1).gather(-1, rollout.response[part][..., None])[..., 0]
        mask = rollout.mask[part]
        tokens = mask.sum() if own_tokens else rollout.mask.sum() / (1 if divide else len(rows))
        (-(logprobs * mask).sum() / tokens / (len(rows) if divide and own_tokens else 1)).backward()
    found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    return found


def test_accumulation_of_real_gradients(model: Any, rollout: Rollout) -> None:
    whole = [slice(0, ROWS)]
    parts = [slice(begin, begin + 2) for begin in range(0, ROWS, 2)]
    one = gradients(model, rollout, whole, divide=True, own_tokens=False)
    right = accumulation(one, gradients(model, rollout, parts, divide=True, own_tokens=False), steps=len(parts))
    assert right.passed
    assert right.warnings == ()
    summed = accumulation(one, gradients(model, rollout, parts, divide=False, own_tokens=False), steps=len(parts))
    assert causes(summed) == ["scale"]
    assert "which is the 6 accumulation steps" in summed.hints[0].text


def test_other_denominators_of_real_gradients(model: Any, rollout: Rollout) -> None:
    """Responses of very different length, each micro-batch averaged over its own tokens."""
    uneven = rollout.mask.clone()
    uneven[: ROWS // 2, 3:] = False
    rollout_mask, rollout.mask = rollout.mask, uneven
    try:
        one = gradients(model, rollout, [slice(0, ROWS)], divide=True, own_tokens=False)
        parts = [slice(begin, begin + 2) for begin in range(0, ROWS, 2)]
        report = accumulation(one, gradients(model, rollout, parts, divide=True, own_tokens=True), steps=len(parts))
    finally:
        rollout.mask = rollout_mask
    assert not report.passed
    assert causes(report) == ["direction"]


def test_the_masks_of_a_real_rollout(model: Any, rollout: Rollout) -> None:
    row = 0
    kept = PROMPT + int(rollout.mask[row].sum())
    length = rollout.tokens.shape[1]
    sources = ["prompt"] * PROMPT + ["policy"] * (kept - PROMPT) + ["pad"] * (length - kept)
    attention = torch.arange(length) < kept
    loss = torch.cat([torch.zeros(PROMPT, dtype=torch.bool), rollout.mask[row]])
    reward = torch.zeros(length)
    reward[kept - 1] = 1.0
    report = mask_table(rollout.tokens[row], sources, attention, loss, reward, eos={EOS})
    assert report.passed
    assert report.numbers["trained_tokens"] == int(rollout.mask[row].sum())
    early = mask_table(rollout.tokens[row], sources, attention, torch.roll(loss, -1), reward, eos={EOS})
    assert causes(early) == ["shift"], "the mask of the predicting positions"
