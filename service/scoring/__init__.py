"""How well alerts say what the labels of recorded runs say."""
