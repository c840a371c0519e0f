"""The HTTP service: metrics, health, an API with tokens and roles, and one plain page."""
