"""The demo: real recorded runs sent step by step through the whole pipeline, with the faults that they are known to have."""
