"""Where records come from, behind `collector.ports.Source`: a spool folder, a file, Kafka, or memory.

A source hands out raw bytes with their positions and never looks into them: what is no record is found by the decoder. Every
source passes the suite in tests/contracts/test_source.py.

    memory   scripted, for tests and for benches
    file     one log of any known format, to its end; replays
    spool    record files that clients write; no Kafka needed
    kafka    topics, as a member of a consumer group (a package of its own: the only place that imports kafka-python)
"""
