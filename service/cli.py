"""The command `tocsin`. Help texts teach by example; errors are one clear line, without a traceback.

Exit status: 0 done, 1 what was checked has faults, 2 the input or the usage is wrong.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Final

import click

from collector.form import form
from service.commands.lazy import LazyGroup

_COMMANDS: Final = {
    "alerts": "service.commands.alerts:alerts",
    "baseline": "service.commands.baseline:baseline",
    "collect": "service.commands.collect:collect",
    "dashboards": "service.commands.dashboards:dashboards",
    "demo": "service.commands.demo:demo",
    "kafka": "service.commands.kafka:kafka",
    "replay": "service.commands.replay:replay",
    "rules": "service.commands.rules:rules",
}


def _show_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"tocsin {version('tocsin-server')}, {form()}")
        context.exit()


@click.group(cls=LazyGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version and exit."
)
def tocsin() -> None:
    """The alarm bell of LLM reinforcement-learning training.

    \b
    See it work, on recorded runs:          tocsin demo
    What would a log have raised?           tocsin replay outputs/grpo-7b/train.log
    Collect, judge, alert, serve /metrics:  tocsin collect --config tocsin.yaml
    Check rules before merging:             tocsin rules check my-rules/
    Who would be told of an alert?          tocsin alerts route-test alerts.yaml --severity page --label team=vision
    Record what is normal, from a good run: tocsin baseline record good.jsonl.gz -o baselines/moe.yaml
    Put the dashboards into a Grafana:      tocsin dashboards publish --url https://grafana.example
    Create the topics once:                 tocsin kafka init --bootstrap broker:9092
    """


def main() -> None:
    """Entry point of the command."""
    try:
        tocsin.main(prog_name="tocsin")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has seen enough; Python would complain while it flushes
        sys.exit(0)


if __name__ == "__main__":
    main()
