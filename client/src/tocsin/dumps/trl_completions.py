"""TRL (`log_completions`): `<output_dir>/completions/completions_<step>.parquet`, one file per logged step with the columns
`step, prompt, completion`, one per reward function, and `advantage`. Reading it needs pyarrow.

The columns mean what those of ms-swift's completions mean (see there), weights and repetitions included. What a reward function
logs with `log_extra` stands beside them: numbers there are taken for rewards unless `reward_functions` is given.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

from tocsin.dumps.ms_swift import checksum, read
from tocsin.dumps.rows import Row
from tocsin.dumps.sample import Dump
from tocsin.formats import UnknownFormat


def parquet_rows(path: Path) -> Iterator[Row]:
    """The table of one file, as one row of columns; a file that is no parquet is an unreadable row.

    Raises UnknownFormat where pyarrow is missing, OSError when the file cannot be read.
    """
    try:
        parquet = importlib.import_module("pyarrow.parquet")  # optional, and untyped
        arrow = importlib.import_module("pyarrow")
    except ImportError as error:
        raise UnknownFormat(f"{TRL.name} needs pyarrow ({error}): pip install pyarrow") from None
    size = path.stat().st_size
    try:
        columns = parquet.read_table(path).to_pydict()
    except arrow.ArrowException as error:  # half-written: the footer comes last
        yield Row(1, 0, size, None, str(error))
        return
    yield Row(1, 0, size, columns)


TRL = Dump(
    "trl-completions",
    "trl",
    "TRL with log_completions: a folder of completions_<step>.parquet (needs pyarrow)",
    read,
    repeats=checksum,
    rows=parquet_rows,
)
