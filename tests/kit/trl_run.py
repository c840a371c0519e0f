"""A real GRPOTrainer on the CPU, in a second: tiny model, tokenizer and prompts are made on the spot, and nothing is fetched.

The responses come from a `rollout_func` that samples from the model and returns the logprobs it sampled with, so that the
trainer has what it gets from vLLM: true ones, or from a step on perturbed ones (`noise_from`).

As a script it is the training job of the end-to-end tests: `python -m tests.kit.trl_run '{"run": ..., "folder": ...}'`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ENVIRONMENT: Final[Mapping[str, str]] = {
    "HF_HUB_OFFLINE": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Set it before transformers is imported."""
SYMBOLS: Final = "0123456789+=ab"
"""The vocabulary, one token each, behind padding, end and unknown."""
PROMPTS: Final = tuple(f"{first}+{second}=" for first in range(4) for second in range(2))


def quick() -> Any:
    """torch on one thread, as a machine that is shared wants it."""
    import torch

    torch.set_num_threads(1)
    return torch


def tokenizer() -> Any:
    """One token per character."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{symbol: index + 3 for index, symbol in enumerate(SYMBOLS)}}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.Fuse()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    return PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, **special)


def model(seed: int = 0) -> Any:
    """GPT-2 of one layer, 32 wide, with random weights and without dropout."""
    torch = quick()
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    ids = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    size = {"vocab_size": len(SYMBOLS) + 3, "n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**ids, **size, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))


def accuracy_reward(completions: Sequence[str], answer: Sequence[str], **_: Any) -> list[float]:
    """1 when the answer's digit is among the first four characters; named as TRL's own function that judges answers."""
    return [float(right in text[:4]) for text, right in zip(completions, answer, strict=True)]


def letter_reward(completions: Sequence[str], **_: Any) -> list[float | None]:
    """The share of letters; does not apply to an empty completion."""
    return [sum(symbol in "ab" for symbol in text) / len(text) if text else None for text in completions]


def rows(prompts: Sequence[str] = PROMPTS, conversational: bool = False) -> list[dict[str, Any]]:
    """A data set: prompts (as text, or as a message of the user) and the digit that is right."""
    return [
        {
            "prompt": [{"role": "user", "content": prompt}] if conversational else prompt,
            "answer": str((int(prompt[0]) + int(prompt[2])) % 10),
        }
        for prompt in prompts
    ]


def rollouts(
    noise_from: int | None = None, noise: float = 0.05, seen: list[Any] | None = None
) -> Callable[..., dict[str, Any]]:
    """A rollout_func. From step `noise_from` on its logprobs are off by a normal error of `noise` nats.

    seen    gets what was returned, generation by generation, with the logprobs before the error as `true`
    """

    def generate(prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        import torch

        encoder, policy = trainer.processing_class, trainer.model
        prompt_ids = [encoder(prompt).input_ids for prompt in prompts]
        (width,) = {len(ids) for ids in prompt_ids}  # equal lengths: positions are then those of the training pass
        tokens = torch.tensor(prompt_ids)
        logprobs = []
        with torch.no_grad():
            for _ in range(trainer.max_completion_length):
                logits = policy(input_ids=tokens).logits[:, -1].float() / trainer.temperature
                distribution = torch.log_softmax(logits, dim=-1)
                drawn = torch.multinomial(distribution.exp(), 1)
                logprobs.append(distribution.gather(1, drawn))
                tokens = torch.cat([tokens, drawn], dim=1)
        told = torch.cat(logprobs, dim=1)
        if noise_from is not None and trainer.state.global_step >= noise_from:
            source = torch.Generator().manual_seed(trainer.state.global_step)
            told = told + noise * torch.randn(told.shape, generator=source)
        completions, kept = [], []
        for row, values in zip(tokens[:, width:].tolist(), told.tolist(), strict=True):
            length = row.index(encoder.eos_token_id) + 1 if encoder.eos_token_id in row else len(row)
            completions.append(row[:length])
            kept.append(values[:length])
        output = {"prompt_ids": prompt_ids, "completion_ids": completions, "logprobs": kept}
        if seen is not None:
            true = [values[: len(row)] for values, row in zip(torch.cat(logprobs, dim=1).tolist(), kept, strict=True)]
            seen.append({**output, "true": true, "step": trainer.state.global_step})
        return output

    return generate


def trainer(folder: Path, *, kind: str = "GRPO", prompts: Sequence[str] = PROMPTS, **settings: Any) -> Any:
    """A trainer of TRL; `settings` are of its configuration, but for `rollout_func`, `reward_funcs`, `eval_dataset`,
    `conversational` (prompts are messages) and `trainer_class` (in place of TRL's own).

    16 responses in groups of 4 per step, in two micro-batches of 8, unless told otherwise.
    """
    quick()
    import trl
    from datasets import Dataset
    from transformers import PrinterCallback

    extra = {name: settings.pop(name) for name in ("rollout_func", "eval_dataset") if name in settings}
    data = rows(prompts, settings.pop("conversational", False))
    trainer_class = settings.pop("trainer_class", None) or getattr(trl, f"{kind}Trainer")
    rewards = settings.pop("reward_funcs", [accuracy_reward, letter_reward])
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_steps": 4,
        "max_completion_length": 10,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "seed": 7,
        "bf16": False,
        "use_cpu": True,
        "activation_checkpointing": False,
        "report_to": [],
        "disable_tqdm": True,
        "output_dir": str(folder),
    }
    arguments = getattr(trl, f"{kind}Config")(**(defaults | settings))
    policy = model()
    if arguments.beta:
        # TRL loads the reference from where the policy came from.
        policy.save_pretrained(folder / "origin")
        policy.config._name_or_path = str(folder / "origin")
    made = trainer_class(
        model=policy,
        args=arguments,
        train_dataset=Dataset.from_list(data),
        processing_class=tokenizer(),
        reward_funcs=rewards,
        **extra,
    )
    made.remove_callback(PrinterCallback)  # a test that fails should show what failed
    return made


def main(arguments: Mapping[str, Any]) -> None:
    """One training with the callback and nothing else of Tocsin; prints where it ended.

    run, folder, steps, noise_from, on_stop
    """
    from tocsin.trl import TocsinCallback

    made = trainer(
        Path(arguments["folder"]),
        max_steps=arguments.get("steps", 12),
        rollout_func=rollouts(arguments.get("noise_from")),
        learning_rate=1e-3,
    )
    made.add_callback(TocsinCallback(arguments["run"], trainer=made, on_stop=arguments.get("on_stop", "ignore")))
    made.train()
    sys.stdout.write(json.dumps({"step": made.state.global_step}) + "\n")


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT)
    main(json.loads(sys.argv[1]))
