"""Values of a configuration whose names are those of secrets stay out of the evidence; others do not."""

from __future__ import annotations

import pytest

from service.evidence.gather import masked


@pytest.mark.parametrize(
    "name",
    ["password", "WANDB_API_KEY", "wandb_api_key", "hf_token", "auth-token", "aws_secret_access_key", "db.passwd", "apiKey"],
)
def test_secrets_are_masked_at_any_depth(name: str) -> None:
    assert masked({"a": [{"b": {name: "hunter2"}}]}) == {"a": [{"b": {name: "***"}}]}


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokenizer", "learning_rate", "pad_token", "eos_token_id", "num_key_value_heads"]
)
def test_what_is_none_stays(name: str) -> None:
    assert masked({name: 7, "b": {name: "x"}}) == {name: 7, "b": {name: "x"}}
