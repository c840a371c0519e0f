"""Evaluation from memory: decode, fold, signals, record rules, all shipped rules; one core, no store, in both forms."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from statistics import median

from benchmarks.forms import forms, measure
from benchmarks.records import encoded
from collector.run import Run
from rules.engine import Engine
from rules.loader import load_bundle, shipped_packs
from rules.run_states import RunStates
from service.garbage import settle
from tocsin import wire

RECORDS = 2_000
ROUNDS = 5
TURNS = 3


def fold(values: list[bytes], engine: Engine) -> tuple[Run, RunStates]:
    """What the pipeline does with the records of one run, without store and deliveries."""
    run, states = Run("bench", depth=max(256, engine.depth)), RunStates()
    for value in values:
        record = wire.decode(value).record
        run.apply(record, received_at=record.time, arrival=record.time)
        if isinstance(record, wire.StepRecord):
            run.extend(engine.record(run))
            found = engine.evaluate(run, states, record.time)
            if found.breaching:
                run.mark_breaching(found.breaching)
    return run, states


def run() -> dict[str, float]:
    """The figures of `measured` for the source, and with `compiled_` before their names for the compiled form. Of all turns the
    median, of CPU times the least: they tell the program from its neighbours on a busy machine."""
    turns: dict[str, list[dict[str, float]]] = {form: [] for form in forms()}
    for _ in range(TURNS):
        for form, places in forms().items():
            turns[form].append(measure("benchmarks.evaluation", places))
    return {
        form + name: (min if "cpu" in name else median)(found[name] for found in several)
        for form, several in turns.items()
        for name in several[0]
    }


def measured() -> dict[str, float]:
    """eval_records_per_s (median of rounds), its parts in microseconds per record, and mb_per_run; of this process's form."""
    engine = Engine(load_bundle([shipped_packs()]))
    values = encoded("bench", RECORDS)
    fold(values[:300], engine)
    settle()  # as `tocsin collect` does
    seconds, cpu = [], []
    for _ in range(ROUNDS):
        gc.collect()
        started, cpu_started = time.perf_counter(), time.process_time()
        fold(values, engine)
        seconds.append(time.perf_counter() - started)
        cpu.append(time.process_time() - cpu_started)
    started = time.perf_counter()
    for value in values:
        wire.decode(value)
    decoding = time.perf_counter() - started
    return {
        "eval_records_per_s": len(values) / median(seconds),
        "eval_us_per_record": median(seconds) / len(values) * 1e6,
        "eval_cpu_us_per_record": min(cpu) / len(values) * 1e6,
        "rules_cpu_us_per_record": min(rules_cpu(values, engine) for _ in range(ROUNDS)) / len(values) * 1e6,
        "decode_us_per_record": decoding / len(values) * 1e6,
        "mb_per_run": memory_per_run(engine, values),
    }


def rules_cpu(values: list[bytes], engine: Engine) -> float:
    """CPU seconds of `Engine.record` and `Engine.evaluate`, each in its place between the others, without the clock itself."""
    clock = time.thread_time
    run, states, spent, readings = Run("bench", depth=max(256, engine.depth)), RunStates(), 0.0, 0
    for value in values:
        record = wire.decode(value).record
        run.apply(record, received_at=record.time, arrival=record.time)
        if isinstance(record, wire.StepRecord):
            began = clock()
            recorded = engine.record(run)
            between = clock()
            run.extend(recorded)
            again = clock()
            found = engine.evaluate(run, states, record.time)
            spent += clock() - again + between - began
            readings += 2
            if found.breaching:
                run.mark_breaching(found.breaching)
    began = clock()
    for _ in range(readings):
        clock()
    return spent - (clock() - began)


def memory_per_run(engine: Engine, values: list[bytes], runs: int = 20) -> float:
    """MiB of one active run with full windows, signals and rule states (allocations traced, averaged over runs)."""
    gc.collect()
    tracemalloc.start()
    kept = [fold(values[:600], engine) for _ in range(runs)]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == runs
    return size / runs / 2**20


if __name__ == "__main__":
    print(json.dumps(measured()))
