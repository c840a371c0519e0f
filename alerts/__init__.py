"""Delivers: alert events in; incidents, routing, delivery rows and receivers out. What is wrong is decided in `rules`."""
