"""Records in, signals and gauges out: sources, canonical names, run state, windows, derived signals, exporter."""
