"""The HTTP service: metrics, health, a read-only API, and one plain page."""
