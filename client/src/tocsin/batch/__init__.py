"""Measures: everything that one training step's arrays tell, computed in the training job (nothing else can see tokens).

    from tocsin.batch import Batch, Settings, summarize

    batch = Batch(mask=..., old_logprobs=..., rollout_logprobs=..., rewards=..., prompts=...)
    summary = summarize(batch, Settings(clip_high=0.28))
    reporter.log(step, summary.metrics, groups=summary.groups)

numpy arrays and torch tensors; on an accelerator everything stays on the device, and scalars come back in one copy.
Needs numpy: `pip install tocsin[batch]`.
"""

from __future__ import annotations

from tocsin.batch.inputs import Batch, Bounds, Settings
from tocsin.batch.summary import Summary, summarize

__all__ = ["Batch", "Bounds", "Settings", "Summary", "summarize"]
