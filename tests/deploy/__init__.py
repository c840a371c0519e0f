"""Tests of the files in deploy/: read, linted, cross-checked and, where no container engine is needed, run."""
