// The lanes: names in a table, which is also what a screen reader reads, and the canvas beside them.

import { effect, useComputed, useSignal, type ReadonlySignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { drawAxis, drawLanes, markIndex, palette, size, sprites, type Scene, type Sprites } from "./draw.ts";
import { AFTER, BEFORE, gapsOf, hit, ROW, shift, toTime, toX, zoom, type Hit, type LaneModel, type Row, type Scale } from "./layout.ts";
import {
  choose, cursor, dark, data, gaps, go, lanesFailure, link, linkTo, loaded, loading, move, moving, now, oldest, overview, overviewFailure, range, reload, rest, rows, view, type Loaded,
} from "./store.ts";
import { count, counted, halves, objectName, plain, short, whyWords } from "./text.ts";
import { full, parse, span, zoneName } from "./time.ts";
import { FIELDS } from "./filters.tsx";
import { Empty, Problem, Text } from "./parts.tsx";
import type { Mark } from "./api.ts";
import { ALL, NO_FILTERS } from "./url.ts";

const AXIS = 24;
/** How much is drawn above and below what is seen, so that scrolling does not show an empty canvas. */
const SPARE = 240;

interface Place {
  x: number;
  y: number;
}

/** For tests and for the console: where things are, and how long frames took. */
export interface Probe {
  frames: number[];
  width: number;
  /** The window is being moved, and the view and its address are not yet where it is. */
  moving: boolean;
  /** The place of an entry on the screen, in CSS pixels of the window. */
  place(seq: number): { x: number; y: number } | null;
  lanes(): { id: string; y: number; marks: number }[];
  /** The hatched ranges of a lane, on the screen. */
  hatched(id: string): { x: number; end: number; y: number; why: string }[];
}

declare global {
  var decklog: Probe | undefined;
}

export function Lanes(): JSX.Element {
  const scroller = useRef<HTMLDivElement>(null);
  const plot = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const axis = useRef<HTMLCanvasElement>(null);
  const width = useSignal(0);
  const tall = useSignal(0);
  const scrolled = useSignal(0);
  const pointed = useSignal<Place | null>(null);
  const under = (at: Place): Hit => {
    const known = loaded.value;
    return known && hit(rows.value, known.models, gaps.value, { ...range.value, width: width.value }, at.x, at.y);
  };
  // The pointer rests on a place, and what is there changes under it: with a load, an entry, or the time.
  const spot = useComputed(() => (pointed.value && moving.value === null ? under(pointed.value) : null));
  const sheet = useRef<Sprites | null>(null);

  useEffect(() => {
    const outer = scroller.current;
    const inner = plot.current;
    if (!outer || !inner) return;
    const measure = (): void => {
      width.value = inner.clientWidth;
      tall.value = outer.clientHeight;
    };
    const watch = new ResizeObserver(measure);
    watch.observe(outer);
    watch.observe(inner);
    measure();
    const onScroll = (): void => {
      // Only when what is drawn is about to end: within it the browser scrolls by itself.
      if (Math.abs(outer.scrollTop - scrolled.peek()) > SPARE / 2) scrolled.value = outer.scrollTop;
    };
    outer.addEventListener("scroll", onScroll, { passive: true });
    return () => {
      watch.disconnect();
      outer.removeEventListener("scroll", onScroll);
    };
  }, []);

  // Everything that is drawn is read in the effect; the drawing waits for the next frame, however much has changed until then.
  useEffect(() => {
    let frame = 0;
    const frames: number[] = [];
    let scene: Scene | null = null;
    const draw = (): void => {
      frame = 0;
      if (!scene || !canvas.current || !axis.current || scene.scale.width === 0) return;
      const started = performance.now();
      if (sheet.current === null || sheet.current.ratio !== devicePixelRatio) sheet.current = sprites(palette());
      const top = Math.max(0, scrolled.peek() - SPARE);
      const height = Math.max(1, Math.min(tall.peek() + 2 * SPARE, Math.max(scene.rows.height, tall.peek()) - top));
      const context = size(canvas.current, scene.scale.width, height);
      canvas.current.style.transform = `translateY(${top}px)`;
      drawLanes(context, sheet.current, scene, top, height);
      drawAxis(size(axis.current, scene.scale.width, AXIS), sheet.current, scene.scale, AXIS, scene.zone, scene.gaps);
      frames.push(performance.now() - started);
      if (frames.length > 600) frames.shift();
      if (loaded.peek() && performance.getEntriesByName("decklog-painted").length === 0) performance.mark("decklog-painted");
    };
    const stopTheme = effect(() => {
      void dark.value;
      sheet.current = null;
    });
    const stop = effect(() => {
      void dark.value;
      void scrolled.value;
      void tall.value;
      const known = loaded.value;
      const found = spot.value;
      scene = {
        rows: rows.value, lanes: known?.models ?? [], gaps: gaps.value, scale: { ...range.value, width: width.value }, now: now.value, oldest: oldest.value,
        covers: known ? { from: known.covers.from, to: link.value === "live" ? AFTER : known.covers.to } : { from: BEFORE, to: AFTER }, entry: view.value.entry, against: view.value.against, cursor: cursor.value,
        hover: found?.kind === "mark" ? { lane: found.lane, mark: found.cluster.mark } : null, zone: view.value.zone,
      };
      if (frame === 0) frame = requestAnimationFrame(draw);
    });
    globalThis.decklog = probe(scroller, plot, frames, () => width.peek());
    return () => {
      stop();
      stopTheme();
      if (frame !== 0) cancelAnimationFrame(frame);
      globalThis.decklog = undefined;
    };
  }, []);

  const scaleNow = (): Scale => ({ ...range.peek(), width: width.peek() });

  // Two fingers zoom, one moves; a mouse drags.
  useEffect(() => {
    const element = plot.current;
    const head = axis.current;
    if (!element || !head) return;
    const held = new Map<number, number>();
    let from: { x: number; range: { from: number; to: number }; moved: boolean } | null = null;
    const place = (event: MouseEvent): Place => {
      const box = element.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    const x = (event: MouseEvent): number => place(event).x;
    const restart = (): void => {
      const first = [...held.values()][0];
      from = first === undefined ? null : { x: first, range: range.peek(), moved: from?.moved ?? false };
    };
    const down = (event: PointerEvent): void => {
      if (event.button !== 0) return;
      held.set(event.pointerId, x(event));
      if (held.size === 1) from = { x: x(event), range: range.peek(), moved: false };
      else restart();
    };
    const moveTo = (event: PointerEvent): void => {
      const before = held.get(event.pointerId);
      if (before === undefined || !from) {
        if (event.pointerType === "mouse") pointed.value = place(event);
        return;
      }
      const at = x(event);
      if (held.size === 2) {
        const other = [...held.entries()].find(([id]) => id !== event.pointerId)?.[1] ?? at;
        const [was, is] = [Math.abs(before - other), Math.abs(at - other)];
        held.set(event.pointerId, at);
        from.moved = true;
        if (was > 4 && is > 4) move(zoom(range.peek(), toTime(scaleNow(), (at + other) / 2), was / is));
        return;
      }
      if (!from.moved && Math.abs(at - from.x) < 4) return;
      if (!from.moved) {
        from.moved = true;
        element.setPointerCapture(event.pointerId);
        element.classList.add("dragging");
        pointed.value = null;
      }
      const size = (from.range.to - from.range.from) / Math.max(1, width.peek());
      move(shift(from.range, (from.x - at) * size), 100_000);
    };
    const up = (event: PointerEvent): void => {
      if (!held.delete(event.pointerId)) return;
      if (held.size > 0) return restart();
      element.classList.remove("dragging");
      if (from?.moved) rest();
      else if (event.type === "pointerup") {
        const found = under(place(event));
        // What the panel says now needs no tip, and stands where the tip was.
        pointed.value = null;
        if (found) act(found, event.shiftKey);
      }
      from = null;
    };
    const wheel = (event: WheelEvent): void => {
      const zooming = event.ctrlKey || event.metaKey || event.currentTarget === head;
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : 0;
      const pixels = event.deltaMode === 1 ? 16 : 1;
      if (zooming) {
        event.preventDefault();
        move(zoom(range.peek(), toTime(scaleNow(), x(event)), Math.exp(Math.max(-60, Math.min(60, event.deltaY * pixels)) * 0.006)));
      } else if (sideways !== 0) {
        event.preventDefault();
        const now = range.peek();
        move(shift(now, ((now.to - now.from) / Math.max(1, width.peek())) * sideways * pixels));
      }
    };
    const leave = (): void => {
      pointed.value = null;
    };
    const twice = (event: MouseEvent): void => move(zoom(range.peek(), toTime(scaleNow(), x(event)), 0.3), 0);
    element.addEventListener("pointerdown", down);
    element.addEventListener("pointermove", moveTo);
    element.addEventListener("pointerup", up);
    element.addEventListener("pointercancel", up);
    element.addEventListener("pointerleave", leave);
    element.addEventListener("dblclick", twice);
    element.addEventListener("wheel", wheel, { passive: false });
    head.addEventListener("wheel", wheel, { passive: false });
    return () => {
      element.removeEventListener("pointerdown", down);
      element.removeEventListener("pointermove", moveTo);
      element.removeEventListener("pointerup", up);
      element.removeEventListener("pointercancel", up);
      element.removeEventListener("pointerleave", leave);
      element.removeEventListener("dblclick", twice);
      element.removeEventListener("wheel", wheel);
      head.removeEventListener("wheel", wheel);
    };
  }, []);

  const known = loaded.value;
  const problem = lanesFailure.value;
  const laid = rows.value;
  const body = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (body.current) body.current.style.height = `${laid.height}px`;
  });

  return (
    <section class="lanes" aria-label="Objects" aria-busy={loading.value}>
      <div class="lanes-head">
        <div class="label-head">
          <span class="muted">{known ? counted(known.answer.lanes.length, "object") : ""}</span>
          {!data.embedded && (
            <select class="order" aria-label="Order" value={view.value.order} onChange={(event) => go({ order: event.currentTarget.value === "names" ? "names" : "" })}>
              <option value="">causes first</option>
              <option value="names">by name</option>
            </select>
          )}
        </div>
        <canvas ref={axis} aria-hidden="true" class="axis" />
      </div>
      <div class="lanes-scroll" ref={scroller} id="lanes">
        <div class="lanes-body" ref={body}>
          <Labels />
          {/* An application, because a screen reader keeps the arrows of anything else to itself. The table stays outside, where it is read as one. */}
          <div
            class="plot"
            ref={plot}
            id="plot"
            tabIndex={0}
            role="application"
            aria-label="Lanes: arrow up and down choose an object, arrow left and right a change, Enter shows it, F6 leads into what is shown. Question mark lists all keys."
          >
            <canvas ref={canvas} aria-hidden="true" />
            <Tip at={pointed} of={spot} width={width} />
          </div>
        </div>
        {problem && (FIELDS.includes(problem.key ?? "") ? <Empty title="Nothing is shown while a filter is wrong" /> : <Problem of={problem} retry={reload} />)}
        {!problem && !known && !overviewFailure.value && (
          <div class="waiting" aria-live="polite">
            Reading the log
          </div>
        )}
        {!problem && known && laid.rows.length === 0 && <Nothing />}
      </div>
    </section>
  );
}

function Nothing(): JSX.Element {
  const { filters } = view.value;
  const known = loaded.value;
  const narrowed = view.value.changed || JSON.stringify({ ...filters, quiet: false }) !== JSON.stringify(NO_FILTERS);
  return (
    <Empty title={narrowed ? "Nothing passes these filters in this window" : "No object is known in this window"}>
      {known && known.answer.unwatched.length > 0 && (
        <p>
          Not recorded: {counted(known.answer.unwatched.length, "range")}:{" "}
          {known.answer.unwatched.slice(-10).map((gap, index) => (
            <button key={index} type="button" disabled={gap.seq === null} onClick={() => gap.seq !== null && choose(gap.seq, false)}>
              GAP <Text of={[gap.resource ?? "everything", gap.namespace].filter(Boolean).join(" ")} max={60} fixed />
            </button>
          ))}
        </p>
      )}
      <p>
        {narrowed && (
          <button type="button" onClick={() => go({ filters: { ...NO_FILTERS, quiet: filters.quiet }, changed: false })}>
            Take the filters away
          </button>
        )}{" "}
        <button type="button" onClick={() => go({ since: ALL, until: "" })}>
          Show the whole log
        </button>
      </p>
    </Empty>
  );
}

function act(found: Exclude<Hit, null>, extend: boolean): void {
  const lane = loaded.peek()?.models[found.lane];
  if (!lane) return;
  if (found.kind === "mark") {
    const mark = lane.lane.marks[found.cluster.mark];
    if (mark) {
      cursor.value = { lane: lane.lane.id, seq: mark.seq };
      choose(mark.seq, extend);
    }
  } else if (found.kind === "gap" && found.gap.seq !== null) choose(found.gap.seq, false);
  else cursor.value = { lane: lane.lane.id, seq: null };
}

export function describe(mark: Mark): string {
  return mark.type === "QUIET" ? counted(mark.quiet, "quiet entry", "quiet entries") : inWords(mark);
}

/** What happened, for the ear; `to`: with the object that it happened to. */
export function inWords(one: Pick<Mark, "type" | "areas" | "managers" | "unnamed" | "evidence">, to = ""): string {
  const areas = one.areas.filter((area) => area !== "managedFields").join(", ");
  const why = one.unnamed === undefined || one.unnamed === one.evidence ? "" : ` (${one.unnamed})`;
  const by = one.managers.length > 0 ? ` by ${one.managers.join(", ")}` : why;
  const how = one.evidence === "watched" || one.evidence === "" ? "" : `, ${one.evidence}`;
  return `${one.type}${areas ? ` ${areas}` : one.type === "MODIFIED" ? " nothing that matters" : ""}${to}${by}${how}`;
}

/** What is known of a moment at which a lane has no mark. */
function quiet(lane: LaneModel, time: number, known: Loaded): string {
  if (time > now.value) return overview.value?.mode === "file" ? "not in this file" : "not yet";
  if (time < oldest.value) return overview.value?.mode === "file" ? "not in this file" : "before the log began";
  if (time < known.covers.from || (time > known.covers.to && link.value !== "live")) return "not loaded";
  if (lane.bars.some((bar) => bar.from <= time && time <= bar.to)) return "there, and quiet";
  const next = lane.bars.filter((bar) => bar.from > time).sort((a, b) => a.from - b.from)[0];
  return next && next.bar.from_how !== "watched" ? "it may have been there already: nobody watched when it came" : "watched: it was not there";
}

function Tip({ at, of, width }: { at: ReadonlySignal<Place | null>; of: ReadonlySignal<Hit>; width: ReadonlySignal<number> }): JSX.Element | null {
  const element = useRef<HTMLDivElement>(null);
  const place = at.value;
  useEffect(() => {
    const box = element.current;
    if (!box || !place) return;
    const plot = box.parentElement?.getBoundingClientRect();
    const foot = document.querySelector(".status")?.getBoundingClientRect().top ?? innerHeight;
    if (!plot) return;
    const right = place.x > width.value / 2;
    const [x, y] = [plot.left + place.x, plot.top + place.y];
    const left = right ? x - box.offsetWidth - 14 : x + 14;
    const top = y + 14 + box.offsetHeight > foot - 4 ? y - 14 - box.offsetHeight : y + 14;
    // Whole, wherever the pointer is.
    box.style.transform = `translate(${Math.round(Math.max(4, Math.min(innerWidth - box.offsetWidth - 4, left)))}px, ${Math.round(Math.max(4, top))}px)`;
  });
  const [known, found] = [loaded.value, of.value];
  const lane = found ? known?.models[found.lane] : undefined;
  if (!known || !found || !lane || !place) return null;
  const { zone } = view.value;
  let lines: string[];
  if (found.kind === "mark") {
    const { cluster } = found;
    const mark = lane.lane.marks[cluster.mark];
    if (!mark) return null;
    const time = parse(mark.time);
    lines = [`${full(time, zone, true).slice(0, -3)} ${zoneName(zone, time)}`, describe(mark)];
    if (mark.since !== undefined) lines.push(`at the earliest ${full(parse(mark.since), zone, true).slice(0, -3)}`);
    if (cluster.marks > 1) lines.push(`and ${counted(cluster.marks - 1, "more change")} here: zoom in to tell them apart`);
    if (mark.type !== "QUIET" && cluster.quiet > 0) lines.push(`${counted(cluster.quiet, "quiet entry", "quiet entries")} folded`);
  } else if (found.kind === "gap") {
    const { gap } = found;
    lines = [`Not recorded: ${whyWords(gap.why)}`, `${gap.from === BEFORE ? "from before the log" : `from ${full(gap.from, zone)}`} to ${full(gap.to, zone)}`];
  } else {
    const time = toTime({ ...range.value, width: width.value }, place.x);
    lines = [`${full(time, zone)} ${zoneName(zone, time)}`, quiet(lane, time, known)];
  }
  return (
    <div class="tip" ref={element} role="presentation">
      <strong>
        <Text of={objectName(lane.lane)} max={80} fixed />
      </strong>
      {lines.map((line, index) => (
        <div key={index}>
          <Text of={line} max={160} fixed />
        </div>
      ))}
    </div>
  );
}

// ---- names, and the table ----------------------------------------------------------------------------------------------

/** So many rows are made at once. The rest follows when there is time: the first picture does not wait for what is below it. */
const FIRST_ROWS = 60;

function Labels(): JSX.Element {
  const known = loaded.value;
  const models = known?.models ?? [];
  const made = useSignal(FIRST_ROWS);
  const total = rows.value.rows.length;
  // One row is a stop of Tab: the one that the arrows chose, so that five hundred rows are no five hundred stops.
  const ids = rows.value.rows.flatMap((row) => (row.kind === "lane" ? [models[row.index]?.lane.id] : []));
  const stop = ids.includes(cursor.value?.lane) ? cursor.value?.lane : ids[0];
  useEffect(() => {
    if (made.value >= total) return;
    const timer = setTimeout(() => (made.value = Math.min(total, made.value * 2)), 30);
    return () => clearTimeout(timer);
  }, [made.value, total]);
  return (
    <table class="labels" role="table">
      <caption class="sr">Objects of the window, each with its lives, its changes and the times that are not recorded</caption>
      <thead class="sr" role="rowgroup">
        <tr role="row">
          {["Object", "Lives", "Changes in the window", "Last change", "Not recorded"].map((name) => (
            <th key={name} scope="col" role="columnheader">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.value.rows.slice(0, made.value).map((row) =>
          row.kind === "namespace" ? (
            <tr key={`ns ${row.namespace}`} class="row-ns" role="row">
              <th scope="rowgroup" role="rowheader" colSpan={5}>
                {row.namespace === "" ? "not in a namespace" : <Text of={row.namespace} max={60} fixed />}
              </th>
            </tr>
          ) : (
            <LaneRow key={models[row.index]?.lane.id} row={row} lane={models[row.index]} stop={models[row.index]?.lane.id === stop} />
          ),
        )}
      </tbody>
    </table>
  );
}

function LaneRow({ row, lane, stop }: { row: Extract<Row, { kind: "lane" }>; lane: LaneModel | undefined; stop: boolean }): JSX.Element | null {
  if (!lane) return null;
  const { lane: known } = lane;
  const active = cursor.value?.lane === known.id;
  const { zone, folded } = view.value;
  const last = known.marks[known.marks.length - 1];
  const [head, tail] = halves(known.name);
  const unknown = gapsOf(known, gaps.value);
  const gone = known.bars.length > 0 && known.bars.every((bar) => bar.to !== null);
  return (
    <tr class={`row depth-${Math.min(3, row.depth)}${active ? " active" : ""}${gone ? " gone" : ""}`} role="row" aria-current={active ? "true" : undefined}>
      <th scope="row" role="rowheader">
        {row.children > 0 ? (
          <button
            type="button"
            class="fold"
            tabIndex={stop ? 0 : -1}
            aria-expanded={!row.folded}
            aria-label={plain(`${counted(row.children, "object")} of ${objectName(known)}`)}
            onClick={() => go({ folded: folded.includes(known.id) ? folded.filter((id) => id !== known.id) : [...folded, known.id] }, false)}
          >
            {row.folded ? "+" : "−"}
          </button>
        ) : (
          <span class="fold" />
        )}
        <a class="name" href={linkTo({ page: "object", object: known.id, at: "", entry: null, against: null })} title={plain(known.id)} aria-label={plain(objectName(known))} tabIndex={stop ? 0 : -1}>
          <span class="head">
            <span class="kind">{short(known.kind)}/</span>
            <Text of={head} max={112} fixed />
          </span>
          <Text of={tail} max={12} fixed />
        </a>
        {row.namespace !== "" && (
          <span class="of">
            <Text of={row.namespace} max={60} fixed />
          </span>
        )}
        {row.folded && <span class="tally">+{count(row.children)}</span>}
        {known.quiet > 0 && (
          <span class="tally" title={counted(known.quiet, "quiet entry", "quiet entries")}>
            {count(known.quiet)} quiet
          </span>
        )}
      </th>
      <td class="sr" role="cell">{known.bars.map((bar) => `${bar.from === null ? "there before" : `${bar.from_how} ${full(parse(bar.from), zone)}`} ${bar.to === null ? "and there still" : `until ${full(parse(bar.to), zone)}`}`).join("; ")}</td>
      <td class="sr" role="cell">{counted(known.marks.length, "change")}</td>
      <td class="sr" role="cell">{last ? plain(`${full(parse(last.time), zone)}: ${describe(last)}, entry ${last.seq}`) : "none"}</td>
      <td class="sr" role="cell">{unknown.map((gap) => plain(`${whyWords(gap.why)} until ${full(gap.to, zone)}, for ${gap.from === BEFORE ? "all before" : span(gap.to - gap.from)}`)).join("; ")}</td>
    </tr>
  );
}

/** Leads the keyboard to the lanes; on a page without them, to the page. */
export function toLanes(): void {
  // What a panel covered is reached again when the document is what the view is.
  setTimeout(() => (document.getElementById("plot") ?? document.getElementById("main"))?.focus({ preventScroll: true }));
}

/** Brings the row of the cursor into sight. */
export function reveal(id: string): void {
  const scroller = document.getElementById("lanes");
  const row = rows.peek().rows.find((one) => one.kind === "lane" && loaded.peek()?.models[one.index]?.lane.id === id);
  if (!scroller || !row) return;
  if (row.y < scroller.scrollTop) scroller.scrollTop = row.y - ROW;
  else if (row.y + 2 * ROW > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = row.y + 2 * ROW - scroller.clientHeight;
}

function probe(scroller: { current: HTMLElement | null }, plot: { current: HTMLElement | null }, frames: number[], width: () => number): Probe {
  const at = (id: string): { y: number; lane: LaneModel } | null => {
    const box = plot.current?.getBoundingClientRect();
    const known = loaded.peek();
    const row = rows.peek().rows.find((one) => one.kind === "lane" && known?.models[one.index]?.lane.id === id);
    if (!box || !known || !row || row.kind !== "lane") return null;
    const lane = known.models[row.index];
    return lane ? { y: box.top + row.y + ROW / 2, lane } : null;
  };
  const scale = (): Scale => ({ ...range.peek(), width: width() });
  const left = (): number => plot.current?.getBoundingClientRect().left ?? 0;
  return {
    frames,
    get width() {
      return width();
    },
    get moving() {
      return moving.peek() !== null;
    },
    place(seq) {
      for (const model of loaded.peek()?.models ?? []) {
        const index = markIndex(model, seq);
        const row = index < 0 ? null : at(model.lane.id);
        if (row) return { x: left() + toX(scale(), model.times[index] ?? 0), y: row.y };
      }
      return null;
    },
    lanes() {
      void scroller;
      return (loaded.peek()?.models ?? []).flatMap((model) => {
        const row = at(model.lane.id);
        return row ? [{ id: model.lane.id, y: row.y, marks: model.lane.marks.length }] : [];
      });
    },
    hatched(id) {
      const row = at(id);
      if (!row) return [];
      const clip = (x: number): number => Math.max(0, Math.min(width(), x));
      return gapsOf(row.lane.lane, gaps.peek()).map((gap) => ({
        x: left() + clip(toX(scale(), gap.from)), end: left() + clip(toX(scale(), gap.to)), y: row.y, why: gap.why,
      }));
    },
  };
}
