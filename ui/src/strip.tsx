// The strip: the whole log as a histogram, and the window in it as a brush.

import { effect } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { drawStrip, palette, size, sprites } from "./draw.ts";
import { toTime, toX, type Scale } from "./layout.ts";
import { allGaps, dark, go, histogram, move, range, rest, view } from "./store.ts";
import { useWidth } from "./parts.tsx";
import { counted } from "./text.ts";
import { full, parse, zoneName } from "./time.ts";
import type { Range } from "./url.ts";

const HEIGHT = 64;
const GRIP = 8;

function stripScale(width: number): Scale | null {
  const shown = histogram.value;
  if (!shown) return null;
  const from = parse(shown.since);
  const to = parse(shown.until);
  return to > from ? { from, to, width } : null;
}

export function Strip(): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const brush = useRef<HTMLDivElement>(null);
  const width = useWidth(box);

  useEffect(
    () =>
      effect(() => {
        void dark.value;
        const scale = stripScale(width.value);
        const shown = histogram.value;
        if (!canvas.current) return;
        // What stood there is of another range.
        if (!scale || !shown || scale.width === 0) return void canvas.current.getContext("2d")?.clearRect(0, 0, canvas.current.width, canvas.current.height);
        const context = size(canvas.current, scale.width, HEIGHT);
        const holes = allGaps.value.map((gap) => ({ from: Math.max(scale.from, gap.from), to: gap.to }));
        drawStrip(context, sprites(palette()), shown, holes, scale, HEIGHT, view.value.zone);
      }),
    [],
  );

  // The brush follows the window in every frame of a move, without a pass of rendering.
  useEffect(
    () =>
      effect(() => {
        const scale = stripScale(width.value);
        const element = brush.current;
        if (!element || !scale) return;
        const window = range.value;
        const a = Math.max(0, Math.min(scale.width - 4, toX(scale, window.from)));
        const b = Math.max(a + 4, Math.min(scale.width, toX(scale, window.to)));
        element.style.transform = `translateX(${a}px)`;
        element.style.width = `${b - a}px`;
      }),
    [],
  );

  const onPointerDown = (event: PointerEvent): void => {
    const element = box.current;
    const scale = stripScale(width.peek());
    if (!element || !scale || event.button !== 0) return;
    const x = event.clientX - element.getBoundingClientRect().left;
    const start = range.peek();
    const a = toX(scale, start.from);
    const b = Math.max(a + 4, toX(scale, start.to));
    const grip = Math.abs(x - a) <= GRIP && b - a > GRIP ? "from" : Math.abs(x - b) <= GRIP ? "to" : x > a && x < b ? "all" : "new";
    const began = toTime(scale, x);
    element.setPointerCapture(event.pointerId);
    event.preventDefault();
    let moved = false;
    const onMove = (next: PointerEvent): void => {
      const at = toTime(scale, Math.max(0, Math.min(scale.width, next.clientX - element.getBoundingClientRect().left)));
      if (Math.abs(next.clientX - event.clientX) > 2) moved = true;
      if (!moved) return;
      let to: Range = start;
      if (grip === "from") to = { from: Math.min(at, start.to - 1), to: start.to };
      else if (grip === "to") to = { from: start.from, to: Math.max(at, start.from + 1) };
      else if (grip === "all") to = { from: start.from + at - began, to: start.to + at - began };
      else if (at !== began) to = { from: Math.min(at, began), to: Math.max(at, began) };
      move(to, 100_000);
    };
    const onUp = (): void => {
      element.removeEventListener("pointermove", onMove);
      element.removeEventListener("pointerup", onUp);
      element.removeEventListener("pointercancel", onUp);
      // A click beside the window brings it there.
      if (!moved && grip === "new") {
        const half = (start.to - start.from) / 2;
        move({ from: began - half, to: began + half });
      }
      rest();
    };
    element.addEventListener("pointermove", onMove);
    element.addEventListener("pointerup", onUp);
    element.addEventListener("pointercancel", onUp);
  };

  const shown = histogram.value;
  return (
    <section class="strip" aria-label="The whole log">
      <div class="strip-box" ref={box} onPointerDown={onPointerDown}>
        <canvas ref={canvas} aria-hidden="true" />
        <div class="brush" ref={brush} hidden={!shown} />
        {shown?.truncated && <p class="uncounted cut">{uncounted(shown.truncated.before)}</p>}
        {shown && <Handle end="from" />}
        {shown && <Handle end="to" />}
      </div>
      <div class="strip-side">
        <label>
          <span class="sr">The strip shows</span>
          <select value={view.value.over} onChange={(event) => go({ over: event.currentTarget.value })}>
            <option value="">whole log</option>
            <option value="1h">last hour</option>
            <option value="6h">last 6 hours</option>
            <option value="24h">last 24 hours</option>
            <option value="7d">last 7 days</option>
            <option value="30d">last 30 days</option>
            {!["", "1h", "6h", "24h", "7d", "30d"].includes(view.value.over) && <option value={view.value.over}>last {view.value.over}</option>}
          </select>
        </label>
        <span class="muted num total">
          {shown ? counted(shown.total, "entry", "entries") : ""}
          {shown?.truncated && " counted"}
        </span>
      </div>
    </section>
  );
}

function uncounted(before: string): string {
  const time = parse(before);
  const { zone } = view.value;
  return Number.isNaN(time) ? "Not all of it was counted" : `Not counted before ${full(time, zone)} ${zoneName(zone, time)}`;
}

/** One end of the window, for the keyboard: invisible until it has the focus. */
function Handle({ end }: { end: "from" | "to" }): JSX.Element {
  const scale = stripScale(100) ?? { from: 0, to: 1, width: 100 };
  const window = range.value;
  const time = window[end];
  const { zone } = view.value;
  const share = Math.max(0, Math.min(100, toX(scale, time)));
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (element.current) element.current.style.left = `${share}%`;
  }, [share]);
  const onKeyDown = (event: KeyboardEvent): void => {
    const step = ((scale.to - scale.from) / 100) * (event.shiftKey ? 10 : 1);
    const by = event.key === "ArrowLeft" ? -step : event.key === "ArrowRight" ? step : 0;
    if (by === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const now = range.peek();
    const to = { ...now, [end]: now[end] + by };
    if (to.from < to.to) move(to);
  };
  return (
    <div
      ref={element}
      class="handle"
      role="slider"
      tabIndex={0}
      aria-label={end === "from" ? "The window begins" : "The window ends"}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(share)}
      aria-valuetext={`${full(time, zone)} ${zoneName(zone, time)}`}
      onKeyDown={onKeyDown}
    />
  );
}
