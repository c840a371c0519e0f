"""The name of the file in which an incident's evidence leaves the store."""

from __future__ import annotations


def filename(incident: str) -> str:
    """`grpo-7b-042-1.zip`: nothing in it that a shell or a file system gives a meaning to."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in incident).strip("-.")[:100]
    return f"{kept or 'incident'}.zip"
