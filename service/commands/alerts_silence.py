"""`tocsin alerts silence`, `unsilence` and `silences`, by a running collector."""

from __future__ import annotations

from typing import Any, Final

import click
from rich.table import Table
from rich.text import Text

from rules.names import suggestion
from service import api_client
from service.commands.alerts_asking import Asking, asks, matched, safe, shown_moment
from service.commands.terminal import fail, out, plural

_KEYS: Final = ("severity", "layer", "rule", "alert", "run")


@click.command(short_help="Tell nobody of what matches, for a while.")
@click.argument("matchers", nargs=-1, metavar="MATCHER...")
@click.option("--label", "labels", multiple=True, metavar="NAME=GLOB", help="A label of the alert or the run; may be repeated.")
@click.option("--for", "lasts", metavar="SPAN", help="How long: 90s, 15m, 2h, 1d; at most 90d.")
@click.option("--until", metavar="TIME", help='Instead of --for: "2026-12-01T22:00Z".')
@click.option("--starts", metavar="TIME", help="When it begins; without it at once.")
@click.option("--reason", required=True, help="Why; for whoever wonders at the silence.")
@click.option("--owner", help="Who answers for it; without it the name of the token.")
@asks
def silence(
    asking: Asking,
    matchers: tuple[str, ...],
    labels: tuple[str, ...],
    lasts: str | None,
    until: str | None,
    starts: str | None,
    reason: str,
    owner: str | None,
) -> None:
    """Make a silence in a running collector: what matches is kept in its incident and told to nobody new.

    A MATCHER is KEY=VALUE with one of the keys severity, layer, rule, alert, run; rule, alert and run are globs. All of
    them must hold; the same key again means "or one of these". What still fires at the end is told then.

    \b
    Examples:
      tocsin alerts silence run='ablate-*' alert=NanLoss --for 2h --reason "NaN is what this ablation is about"
      tocsin alerts silence severity=warning --label team=vision --until 2026-12-01T07:00Z --reason "known, fixed tomorrow"
      TOCSIN_TOKEN=... tocsin alerts silence run=grpo-7b-042 --for 30m --reason restart --address https://tocsin.example

    It prints the id, with which `tocsin alerts unsilence` ends it. What is to last belongs in a file of silences, where it
    is reviewed. Exit status 0, 1 when the collector refuses, 2 when it cannot be asked.
    """
    if (lasts is None) == (until is None):
        fail("say how long: one of --for 2h and --until 2026-12-01T22:00Z")
    body = {
        "match": _match(matchers, labels),
        "reason": reason,
        "owner": owner,
        "for": lasts,
        "expires": until,
        "starts": starts,
    }
    made = api_client.silence(asking.api, body)
    if not asking.show(made):
        click.echo(f"silence {made['id']}: {matched(made)} until {shown_moment(made['expires_at'])}")


@click.command(short_help="Let silences end now.")
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@asks
def unsilence(asking: Asking, ids: tuple[str, ...]) -> None:
    """End silences that were made while the collector runs. What still fires under them is told within a second.

    \b
    Example:
      tocsin alerts unsilence 9f2c41aa

    One of a file is ended in the file. Exit status as of `tocsin alerts silence`.
    """
    for id_ in ids:
        ended = api_client.unsilence(asking.api, id_)
        if not asking.show(ended):
            click.echo(f"silence {safe(ended['ended'])} has ended")


@click.command(short_help="Which silences hold, and whose are they?")
@click.option(
    "--state",
    type=click.Choice(("active", "pending", "expired", "all")),
    help="Only these; without it those that hold or are to come.",
)
@asks
def silences(asking: Asking, state: str | None) -> None:
    """List silences, those of files and those that were made while the collector runs.

    \b
    Examples:
      tocsin alerts silences
      tocsin alerts silences --state all --json
    """
    answer = api_client.silences(asking.api, state)
    if asking.show(answer):
        return
    table = Table(title=plural(len(answer["silences"]), "silence"), title_justify="left")
    for heading in ("id", "state", "what", "owner", "until", "reason", "stands in"):
        table.add_column(heading, overflow="fold")
    for each in answer["silences"]:
        cells = (
            each["id"],
            each["state"],
            matched(each),
            each["owner"],
            shown_moment(each["expires_at"]),
            each["reason"],
            each["place"],
        )
        table.add_row(*(Text(safe(cell)) for cell in cells))
    out().print(table)


def _match(matchers: tuple[str, ...], labels: tuple[str, ...]) -> dict[str, Any]:
    """`match:` as the API takes it; whether the values are good ones is for the collector to say."""
    found: dict[str, Any] = {}
    for text in matchers:
        key, value = _pair(text, "MATCHER", "run=ablate-*")
        if key not in _KEYS:
            hint = suggestion(key, _KEYS) or f" (there are {', '.join(_KEYS)}; a label is written --label {text})"
            fail(f"MATCHER {text!r}: no key {key!r}{hint}")
        if key == "layer" and not value.isdecimal():
            fail(f"MATCHER {text!r}: a layer is a whole number")
        found.setdefault(key, []).append(int(value) if key == "layer" else value)
    for text in labels:
        name, glob = _pair(text, "--label", "team=vision")
        found.setdefault("labels", {}).setdefault(name, []).append(glob)
    return found


def _pair(text: str, what: str, example: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator or not value:
        fail(f"{what} {text!r}: write NAME=VALUE, such as {example}")
    return name, value
