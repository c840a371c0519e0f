"""Tests of rules, written as YAML: read, told to the real collector and rules, compared with what was expected, reported."""
