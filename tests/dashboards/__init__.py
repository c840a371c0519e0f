"""The Grafana dashboards: generated, linted, and every query asked of a real Prometheus."""
