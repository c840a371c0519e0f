"""Shows: the Grafana dashboards as code, the JSON that is generated from it, what must hold of it, and how it is published.

A dashboard is data (`model.Dashboard`); `builders` turns it into Grafana's Classic JSON with grafana-foundation-sdk, which only
the build needs. What ships and is published is the generated JSON. Threshold lines come from the rule bundle.
"""
