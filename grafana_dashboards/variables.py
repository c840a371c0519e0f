"""The pickers at the top, in one order for all dashboards: data source, job, team, model, run."""

from __future__ import annotations

from typing import Final

from grafana_dashboards.model import Variable, VariableKind

DATASOURCE: Final = Variable("datasource", "Data source", VariableKind.DATASOURCE, "prometheus")
JOB: Final = Variable("job", "Job", query="label_values(tocsin_build_info, job)", multi=True, all_value=".+")
# A run without a team has no such label, and only a pattern that matches nothing as well finds it.
TEAM: Final = Variable("team", "Team", query='label_values(tocsin_run_info{job=~"$job"}, team)', multi=True, all_value=".*")
MODEL: Final = Variable(
    "model", "Model", query='label_values(tocsin_run_info{job=~"$job",team=~"$team"}, model)', multi=True, all_value=".*"
)
_RUNS: Final = 'label_values(tocsin_run_info{job=~"$job",team=~"$team",model=~"$model"}, run)'
RUNS: Final = Variable("run", "Run", query=_RUNS, multi=True, all_value=".+")
RUN: Final = Variable("run", "Run", query=_RUNS)

COLLECTOR: Final = Variable("collector", "Address of Tocsin", VariableKind.CONSTANT, "http://127.0.0.1:9464")
RUNBOOKS: Final = Variable("runbooks", "Address of the runbooks", VariableKind.CONSTANT, "/runbooks")
"""Constants: `publish` and `export` set them to where yours are."""

MANY: Final = (DATASOURCE, JOB, TEAM, MODEL, RUNS, COLLECTOR, RUNBOOKS)
SINGLE: Final = (DATASOURCE, JOB, TEAM, MODEL, RUN, COLLECTOR, RUNBOOKS)
