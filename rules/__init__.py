"""Decides: rule files, their language, verdicts, the alert state machine. Delivery to people is the work of `alerts`."""
