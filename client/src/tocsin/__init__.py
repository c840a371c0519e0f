"""Tocsin's client: the only code of Tocsin that a training job imports."""

__version__ = "0.1.0"
