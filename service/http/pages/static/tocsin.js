// Keeps a page up to date without taking its reader's place: asks for the page again and exchanges the parts marked data-live
// that have changed. What is open stays open, what has the focus keeps it, what is on top of the window stays there. A page
// works without this script; then it is asked for again as a whole, or by hand.
"use strict";
(() => {
  const every = 5000;
  const parts = () => [...document.querySelectorAll("[data-live][id]")];
  const seen = new Map(parts().map((part) => [part.id, part.innerHTML]));
  const fresh = document.getElementById("fresh");
  let lost = false;
  let held = false;

  const address = new URL(location.href);
  if (address.searchParams.has("said")) {
    address.searchParams.delete("said");
    history.replaceState(null, "", address);
  }

  // A button that is taken away between press and release is not clicked.
  addEventListener("pointerdown", () => { held = true; }, true);
  for (const over of ["pointerup", "pointercancel"]) addEventListener(over, () => { held = false; }, true);

  const busy = () => held || document.hidden || !document.getSelection().isCollapsed || document.activeElement?.matches("input, select, textarea");
  const open = (part) => [...part.querySelectorAll("details[id]")].filter((each) => each.open).map((each) => each.id);
  // What was typed or chosen, where it is not what the page came with.
  const filled = (part) => [...part.querySelectorAll("input[id], select[id]")]
    .filter((each) => each.matches("select") ? !each.selectedOptions[0]?.defaultSelected : each.value !== each.defaultValue)
    .map((each) => [each.id, each.value]);
  const refill = (field, value) => {
    if (field && (field.matches("input") || [...field.options].some((each) => each.value === value))) field.value = value;
  };
  const scrolled = (part) => [...part.querySelectorAll(".wide")].map((each) => each.scrollLeft);
  const focused = (part) => {
    const now = document.activeElement;
    if (!part.contains(now)) return null;
    if (now.id) return (fresh) => fresh.querySelector("#" + CSS.escape(now.id));
    const alike = (where) => [...where.querySelectorAll(now.tagName)];
    const place = alike(part).indexOf(now);
    const href = now.getAttribute("href");
    return (fresh) => alike(fresh).find((each) => href && each.getAttribute("href") === href) ?? alike(fresh)[place];
  };

  function exchange(part, next) {
    const opened = open(part), values = filled(part), wide = scrolled(part), refocus = focused(part);
    part.replaceChildren(...next.childNodes);
    for (const id of opened) part.querySelector("#" + CSS.escape(id))?.setAttribute("open", "");
    for (const [id, value] of values) refill(part.querySelector("#" + CSS.escape(id)), value);
    part.querySelectorAll(".wide").forEach((each, index) => { each.scrollLeft = wide[index] ?? 0; });
    refocus?.(part)?.focus({ preventScroll: true });
  }

  function update(page) {
    const top = parts().find((part) => part.getBoundingClientRect().bottom > 0);
    const before = top?.getBoundingClientRect().top;
    for (const part of parts()) {
      const next = page.getElementById(part.id);
      if (!next || seen.get(part.id) === next.innerHTML) continue;
      seen.set(part.id, next.innerHTML);
      exchange(part, next);
    }
    document.title = page.title;
    if (top && before < 0) scrollBy(0, top.getBoundingClientRect().top - before);
  }

  function say(text) {
    if (fresh.textContent !== text) fresh.textContent = text;
  }

  async function look() {
    if (busy()) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store" });
      if (answer.status === 401) return say("The session is over: open the page again to log in.");
      if (!answer.ok) return say("This page cannot be read at present: it may be out of date.");
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!busy()) update(page);
      say(lost ? "The collector answers again." : "");
      lost = false;
    } catch {
      lost = true;
      say("The collector does not answer: this page may be out of date.");
    }
  }

  if (parts().length) setInterval(look, every);
})();
