"""The README's picture: what a terminal showed, as SVG without outside resources.

script -qec 'stty cols 130; .venv/bin/tocsin demo --speed 4' typescript
.venv/bin/python docs/images/demo_svg.py typescript > docs/images/demo.svg
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 130


def shown(typescript: str) -> list[str]:
    """The lines worth a picture: the first stop with its message, then the summary."""
    lines = [re.sub(r"\x1b\[\??\d*[A-KhlJ]|\r", "", line) for line in typescript.splitlines()]
    plain = [Text.from_ansi(line).plain for line in lines]
    first = next(number for number, line in enumerate(plain) if line.startswith("STOP "))
    end = next(number for number, line in enumerate(plain) if number > first and line.startswith("training step"))
    summary = next(number for number, line in enumerate(plain) if line.startswith("What was wrong"))
    last = next(number for number, line in enumerate(plain) if "faulty runs paged" in line)
    return ["$ make demo", "", *lines[first:end], "  ...", "", *lines[summary : last + 1]]


def main() -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for line in shown(Path(sys.argv[1]).read_text(encoding="utf-8")):
        console.print(Text.from_ansi(line), no_wrap=True, crop=True)
    svg = console.export_svg(title="tocsin demo")
    # Fonts of another host would be fetched by whoever looks; every system has a monospaced one.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace("Fira Code", "DejaVu Sans Mono")
    sys.stdout.write(re.sub(r"<!-- .*? -->", "", svg))


if __name__ == "__main__":
    main()
