"""Tocsin for TRL: one callback that reports a GRPO or RLOO run, with what only the trainer's arrays can tell.

    from tocsin.trl import TocsinCallback

    trainer = GRPOTrainer(...)
    trainer.add_callback(TocsinCallback(run="grpo-7b-042", trainer=trainer, on_stop="checkpoint_and_stop"))
    trainer.train()

Needs transformers, which a TRL job has; measures need numpy (`pip install tocsin[batch]`). Unsloth patches TRL's trainers, so
this is its callback too; what differs is in docs/frameworks/unsloth.md. Other trainers of Hugging Face: their log rows.
"""

from __future__ import annotations

from tocsin.trl.callback import TocsinCallback

__all__ = ["TocsinCallback"]
