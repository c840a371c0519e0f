"""The store: every effect of a batch in one transaction with the positions of its input."""
