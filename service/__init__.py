"""The composition root: configuration, wiring, store, HTTP, the `tocsin` command. Nobody imports it."""
