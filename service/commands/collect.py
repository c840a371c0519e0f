"""`tocsin collect`."""

import click


@click.command()
def collect() -> None:
    """x"""
