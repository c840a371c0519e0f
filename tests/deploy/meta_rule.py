"""The meta rules as a PrometheusRule for Kubernetes: `python -m tests.deploy.meta_rule` writes it, a test compares."""

from __future__ import annotations

import textwrap

from tests.kit.deploying import DEPLOY

SOURCE = DEPLOY / "prometheus" / "tocsin-meta-rules.yaml"
TARGET = DEPLOY / "kubernetes" / "base" / "prometheusrule.yaml"

_HEAD = """\
# deploy/prometheus/tocsin-meta-rules.yaml as a PrometheusRule: edit that one, then `python -m tests.deploy.meta_rule`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tocsin
spec:
"""


def render() -> str:
    """The manifest's text."""
    rules = SOURCE.read_text(encoding="utf-8")
    return _HEAD + textwrap.indent(rules[rules.index("groups:") :], "  ")


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
