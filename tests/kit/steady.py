"""When a page is ready for what a person does: loaded, painted, and nothing on it moves.

A browser drops what it is told before it has shown the first frame of a page, without a word; a test can be that fast, a person
cannot. The looks come from outside: a page whose own scripts do not run, or which is being replaced, can be waited for as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

UNPAINTED: Final = "nothing of it has been painted"
_SEEN: Final = f"""
  if (document.readyState !== "complete") return {{not: `the document is ${{document.readyState}}`}};
  if (!performance.getEntriesByType("paint").length) return {{not: "{UNPAINTED}"}};
"""
KEYBOARD: Final = f"""(() => {{{_SEEN}
  const now = document.activeElement, named = now ? `${{now.tagName}} ${{now.id}}` : "nothing";
  const writes = Boolean(now?.matches("input, textarea, select, [contenteditable]"));
  return {{place: [performance.timeOrigin, named], named, writes}};
}})()"""
"""Where a key would go: the `named` element, which one `writes` in or not."""
_MOUSE: Final = f"""((selector) => {{{_SEEN}
  const each = document.querySelector(selector);
  if (!each) return {{not: "there is no such element"}};
  each.scrollIntoView({{block: "center", behavior: "instant"}});
  const box = each.getBoundingClientRect();
  if (!box.width || !box.height) return {{not: "it has no size"}};
  const middle = [box.x + box.width / 2, box.y + box.height / 2];
  const top = document.elementFromPoint(...middle);
  if (!top) return {{not: "it is out of the window"}};
  if (!each.contains(top)) return {{not: `${{top.tagName}} ${{top.id}} ${{top.className}} lies over it`}};
  return {{place: [performance.timeOrigin, box.x, box.y, box.width, box.height], middle}};
}})"""


def mouse(selector: str) -> str:
    """Where a click would go: the `middle` of what the selector finds first, if that is what would be hit."""
    return f"{_MOUSE}({json.dumps(selector)})"


def writes(found: dict[str, Any]) -> str | None:
    """Why nothing can be typed where the keyboard is."""
    return None if found["writes"] else f"{found['named']} has the focus"


def steady(
    look: Callable[[], dict[str, Any]],
    what: str,
    patience: float,
    lacks: Callable[[dict[str, Any]], str | None] = lambda _: None,
) -> dict[str, Any]:
    """What a look finds, once two looks in a row find the same `place`. AssertionError with what was in the way to the end.

    A look answers `not` with the reason while there is no place; `lacks` may have a reason of its own.
    """
    before: list[Any] | None = None
    end = time.monotonic() + patience
    while True:
        found = look()
        reason = found.get("not") or lacks(found)
        place = None if reason else found["place"]
        if place is not None and place == before:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what} is not there after {patience:g} s: {reason or 'it does not keep still'}")
        before = place
        time.sleep(0.02)
