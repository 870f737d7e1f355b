// Everything by the keyboard. Letters work wherever nobody is writing; arrows only in the lanes, because elsewhere they scroll.

import { describe, reveal, toLanes } from "./lanes.tsx";
import { markIndex, nearest } from "./draw.ts";
import { shift, zoom, type LaneModel } from "./layout.ts";
import { choose, closeEntry, cursor, data, go, helpOpen, loaded, move, picking, range, rows, said, theme, view } from "./store.ts";
import { objectName, plain } from "./text.ts";
import { full, parse } from "./time.ts";
import { ALL, frozen, isLive } from "./url.ts";

export const KEYS: [string, string][] = [
  ["↑ ↓  k j", "the object above, below"],
  ["← →", "the change before, after, of this object"],
  ["Home End", "its first, its last change"],
  ["Enter", "show the change; on an object without one, its page"],
  ["F6 or e", "into the entry that is shown, and back to the lanes"],
  ["Shift Enter", "compare with the change that is shown"],
  ["c", "compare: choose the other change next"],
  ["o", "the page of the object"],
  ["Space", "fold what the object owns, or unfold it"],
  ["p n", "the entry of the object before, after the one that is shown"],
  ["y", "copy the command that undoes the change"],
  ["+ −", "zoom in, out"],
  ["[ ]", "move the window back, forward"],
  ["0", "the whole log"],
  ["l", "follow the log, or stop"],
  ["f or /", "filters"],
  ["q", "show quiet entries, or fold them"],
  ["h", "hide objects that did not change, or show them"],
  ["1 to 5", "Timeline, Log, As of, Churn, Health"],
  ["u", "UTC or local time"],
  ["t", "dark, light, or as the system has it"],
  ["Esc", "close"],
  ["?", "this list"],
];

function order(): LaneModel[] {
  const models = loaded.peek()?.models ?? [];
  return rows.peek().rows.flatMap((row) => {
    const model = row.kind === "lane" ? models[row.index] : undefined;
    return model ? [model] : [];
  });
}

function speak(lane: LaneModel, index: number): void {
  const name = plain(`${objectName(lane.lane)}${lane.lane.namespace ? ` in ${lane.lane.namespace}` : ""}`);
  const mark = lane.lane.marks[index];
  if (!mark) said.value = `${name}: no change in the window`;
  else said.value = plain(`${name}: ${describe(mark)}, ${full(parse(mark.time), view.peek().zone)}, ${index + 1} of ${lane.lane.marks.length}`, 400);
}

function moveLane(by: number): void {
  const lanes = order();
  if (lanes.length === 0) return;
  const at = lanes.findIndex((lane) => lane.lane.id === cursor.peek()?.lane);
  const lane = lanes[at < 0 ? (by > 0 ? 0 : lanes.length - 1) : Math.max(0, Math.min(lanes.length - 1, at + by))];
  if (!lane) return;
  // Stay at about the same time, so that what happened together is found by going up and down.
  const before = lanes[at];
  const seq = cursor.peek()?.seq ?? null;
  const kept = before && seq !== null ? markIndex(before, seq) : -1;
  const time = before && kept >= 0 ? (before.times[kept] ?? range.peek().to) : range.peek().to;
  const index = nearest(lane, time);
  cursor.value = { lane: lane.lane.id, seq: lane.lane.marks[index]?.seq ?? null };
  reveal(lane.lane.id);
  speak(lane, index);
}

function moveMark(by: number | "first" | "last"): void {
  const lane = order().find((one) => one.lane.id === cursor.peek()?.lane);
  if (!lane) return moveLane(1);
  const { marks } = lane.lane;
  const seq = cursor.peek()?.seq ?? null;
  const at = seq === null ? -1 : markIndex(lane, seq);
  const wanted = by === "first" ? 0 : by === "last" ? marks.length - 1 : at < 0 ? marks.length - 1 : at + by;
  const index = Math.max(0, Math.min(marks.length - 1, wanted));
  const mark = marks[index];
  if (!mark) return;
  cursor.value = { lane: lane.lane.id, seq: mark.seq };
  const time = lane.times[index] ?? 0;
  const window = range.peek();
  const size = window.to - window.from;
  if (time < window.from) move(shift(window, time - window.from - size * 0.1));
  else if (time > window.to) move(shift(window, time - window.to + size * 0.1));
  speak(lane, index);
}

function inLanes(event: KeyboardEvent): boolean {
  switch (event.key) {
    case "ArrowDown":
      moveLane(1);
      return true;
    case "ArrowUp":
      moveLane(-1);
      return true;
    case "ArrowLeft":
      moveMark(-1);
      return true;
    case "ArrowRight":
      moveMark(1);
      return true;
    case "PageDown":
      moveLane(10);
      return true;
    case "PageUp":
      moveLane(-10);
      return true;
    case "Home":
      moveMark("first");
      return true;
    case "End":
      moveMark("last");
      return true;
    case "Enter": {
      const at = cursor.peek();
      if (!at) return false;
      if (at.seq !== null) choose(at.seq, event.shiftKey);
      else go({ page: "object", object: at.lane, at: "", entry: null, against: null });
      return true;
    }
    case " ": {
      const at = cursor.peek();
      if (!at) return true;
      const { folded } = view.peek();
      go({ folded: folded.includes(at.lane) ? folded.filter((id) => id !== at.lane) : [...folded, at.lane] }, false);
      return true;
    }
    default:
      return false;
  }
}

function click(selector: string): boolean {
  const element = document.querySelector<HTMLButtonElement>(selector);
  if (!element || element.disabled) return false;
  element.click();
  return true;
}

function anywhere(event: KeyboardEvent): boolean {
  const window = range.peek();
  const middle = (window.from + window.to) / 2;
  const known = view.peek();
  const timed = known.page === "timeline" || known.page === "log";
  const pages = ["timeline", "log", "state", "churn", "health"] as const;
  switch (event.key) {
    case "?":
      helpOpen.value = !helpOpen.peek();
      return true;
    case "Escape":
      if (helpOpen.peek()) helpOpen.value = false;
      else if (picking.peek()) picking.value = false;
      else if (known.against !== null) go({ against: null });
      else if (known.entry !== null) {
        closeEntry();
        toLanes();
      } else return false;
      return true;
    case "j":
    case "k":
      // At once: Enter is of the lane that was chosen, and not of the link that was focused before.
      document.getElementById("plot")?.focus({ preventScroll: true });
      moveLane(event.key === "j" ? 1 : -1);
      return true;
    case "+":
    case "=":
      if (timed) move(zoom(window, middle, 0.6));
      return timed;
    case "-":
    case "−":
      if (timed) move(zoom(window, middle, 1 / 0.6));
      return timed;
    case "[":
      if (timed) move(shift(window, (window.from - window.to) * 0.25));
      return timed;
    case "]":
      if (timed) move(shift(window, (window.to - window.from) * 0.25));
      return timed;
    case "0":
      go({ since: ALL, until: "" });
      return true;
    case "l":
      if (isLive(known)) go(frozen(window));
      else return click(".live");
      return true;
    case "f":
    case "/": {
      const toggle = document.querySelector<HTMLButtonElement>(".filters-toggle");
      if (toggle?.offsetParent && toggle.getAttribute("aria-expanded") === "false") toggle.click();
      setTimeout(() => document.getElementById("filter-what")?.focus());
      return true;
    }
    case "q":
      if (data.embedded) return false;
      go({ filters: { ...known.filters, quiet: !known.filters.quiet } });
      return true;
    case "h":
      go({ changed: !known.changed });
      return true;
    case "c":
      if (known.entry === null || data.embedded) return false;
      picking.value = !picking.peek();
      toLanes();
      return true;
    case "o": {
      const at = cursor.peek();
      if (!at) return false;
      go({ page: "object", object: at.lane, at: "", entry: null, against: null });
      return true;
    }
    case "F6":
    case "e": {
      const panel = document.getElementById("panel");
      if (panel?.contains(document.activeElement)) toLanes();
      else panel?.focus();
      return panel !== null;
    }
    case "p":
      return click(".panel-nav button:first-of-type");
    case "n":
      return click(".panel-nav button:nth-of-type(2)");
    case "y":
      return click("#panel .copy") || click(".copy");
    case "u":
      go({ zone: known.zone === "utc" ? "local" : "utc" }, false);
      return true;
    case "t":
      theme.value = theme.peek() === "auto" ? "dark" : theme.peek() === "dark" ? "light" : "auto";
      return true;
    case "1":
    case "2":
    case "3":
    case "4":
    case "5":
      go({ page: pages[Number(event.key) - 1] ?? "timeline", against: null });
      return true;
    default:
      return false;
  }
}

export function listen(): void {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const at = event.target as HTMLElement;
    const writing = at.matches("input, textarea, select");
    if (writing) {
      if (event.key === "Escape") {
        at.blur();
        toLanes();
      }
      return;
    }
    if (helpOpen.peek() && event.key !== "Escape" && event.key !== "?") return;
    const done = (at.id === "plot" && inLanes(event)) || anywhere(event);
    if (done) event.preventDefault();
  });
}
