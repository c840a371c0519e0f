"""Per-sample dumps of frameworks, measured: what their metric logs do not hold is computed from what they write down anyway.

A dump holds every sample of a step. `tocsin-ship` follows it (`Stepwise` for a file per step, `Appended` for files that grow),
turns a step into a `tocsin.batch.Batch`, and sends what `summarize` makes of it as a row of that step with canonical names, the
prompt groups, and a few rollouts to read. The framework's own log is shipped beside it under the same run id; the collector
merges rows of one step.

    sample      what all dumps share
    nemo verl open_instruct ms_swift areal trl_completions      one framework each: a row to samples, and its traps
    collect     a step's samples in bounded memory, grouped and judged
    measure     a step's samples to metrics, groups and rollouts; the only module that needs numpy
    record      to records of the run
    layout      where steps lie on the disk
    stepwise appended shards      followers
    known       all formats, and how one is recognised

slime's debug dumps (`.pt`) are not read: they are Python pickles, which run what is in them.
"""

from __future__ import annotations

from tocsin.dumps.known import DUMPS, follow_dump, recognise_dump
from tocsin.dumps.sample import Dump, Options, Sample

__all__ = ["DUMPS", "Dump", "Options", "Sample", "follow_dump", "recognise_dump"]
