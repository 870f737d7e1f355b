// The canvas: bars, hatching and marks of the rows that are on the screen, and the histogram of the strip.

import type { Histogram } from "./api.ts";
import { badge, bars, clusters, gapsOf, LOOKS, lowerBound, ROW, rowsBetween, toX, UNSEEN, type GapModel, type LaneModel, type Look, type Rows, type Scale } from "./layout.ts";
import { parse, ticks, type Zone } from "./time.ts";
import type { Range } from "./url.ts";

export interface Palette {
  ground: string;
  line: string;
  text: string;
  muted: string;
  bar: string;
  edge: string;
  hatch: string;
  /** Of what nobody knows: quieter than any change. */
  gap: string;
  accent: string;
  looks: Record<Look, string>;
  types: [string, string, string, string];
}

/** Colours are those of the style sheet, so that there is one place for them. */
export function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    ground: read("ground"), line: read("line"), text: read("text"), muted: read("muted"), bar: read("bar"), edge: read("edge"), hatch: read("hatch"), gap: read("gap"),
    accent: read("accent"),
    looks: {
      DELETED: read("deleted"), ADDED: read("added"), spec: read("spec"), data: read("data"), other: read("other"), metadata: read("metadata"),
      status: read("status"), nothing: read("muted"), QUIET: read("quiet"),
    },
    types: [read("added"), read("modified"), read("deleted"), read("gap")],
  };
}

/** Sets the size of a canvas in CSS pixels, and its scale to the screen's. */
export function size(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = devicePixelRatio;
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w) canvas.width = w;
  if (canvas.height !== h) canvas.height = h;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser has no canvas");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

const GLYPH = 13;

/**
 * Every look has its shape, so that nobody needs the colours. A rim in the colour of the ground keeps marks apart that stand
 * on a bar or on each other.
 */
export function glyph(context: CanvasRenderingContext2D, look: Look, colour: string, ground: string, x: number, y: number, hollow = false): void {
  const outline = new Path2D();
  let filled = true;
  switch (look) {
    case "ADDED":
      outline.moveTo(x - 4, y + 4.5);
      outline.lineTo(x, y - 4.5);
      outline.lineTo(x + 4, y + 4.5);
      outline.closePath();
      break;
    case "DELETED":
      filled = false;
      outline.moveTo(x - 3.5, y - 3.5);
      outline.lineTo(x + 3.5, y + 3.5);
      outline.moveTo(x + 3.5, y - 3.5);
      outline.lineTo(x - 3.5, y + 3.5);
      break;
    case "spec":
      outline.moveTo(x, y - 5.2);
      outline.lineTo(x + 5.2, y);
      outline.lineTo(x, y + 5.2);
      outline.lineTo(x - 5.2, y);
      outline.closePath();
      break;
    case "data":
      outline.rect(x - 3.8, y - 3.8, 7.6, 7.6);
      break;
    case "other":
      outline.moveTo(x - 4, y - 4);
      outline.lineTo(x, y + 4.5);
      outline.lineTo(x + 4, y - 4);
      outline.closePath();
      break;
    case "metadata":
      filled = false;
      outline.arc(x, y, 3.2, 0, 7);
      break;
    case "status":
      outline.arc(x, y, 3.4, 0, 7);
      break;
    case "nothing":
      filled = false;
      outline.moveTo(x, y - 4);
      outline.lineTo(x, y + 4);
      break;
    case "QUIET":
      outline.arc(x, y, 1.8, 0, 7);
      break;
  }
  context.lineJoin = "round";
  context.lineCap = "round";
  context.strokeStyle = ground;
  context.lineWidth = filled ? 2 : 5;
  context.stroke(outline);
  if (filled && hollow) {
    context.fillStyle = ground;
    context.fill(outline);
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.stroke(outline);
  } else if (filled) {
    context.fillStyle = colour;
    context.fill(outline);
  } else {
    context.strokeStyle = colour;
    context.lineWidth = 2.2;
    context.stroke(outline);
  }
}

/** Glyphs are drawn once and then copied: a copy costs a tenth of a path. */
export interface Sprites {
  ratio: number;
  palette: Palette;
  images: HTMLCanvasElement[];
  hatch: CanvasPattern;
  unrecorded: CanvasPattern;
}

export function sprites(colours: Palette): Sprites {
  const ratio = devicePixelRatio;
  const make = (look: Look, hollow: boolean): HTMLCanvasElement => {
    const image = document.createElement("canvas");
    image.width = image.height = Math.ceil(GLYPH * ratio);
    const context = image.getContext("2d");
    if (context) {
      context.scale(ratio, ratio);
      glyph(context, look, colours.looks[look], colours.ground, GLYPH / 2, GLYPH / 2, hollow);
    }
    return image;
  };
  // By their numbers: those that nobody saw are UNSEEN further on.
  const images: HTMLCanvasElement[] = [];
  for (const [index, look] of LOOKS.entries()) {
    images[index] = make(look, false);
    images[index | UNSEEN] = make(look, true);
  }
  return { ratio, palette: colours, images, hatch: stripes(colours.gap, ratio, 8, 1.2), unrecorded: stripes(colours.line, ratio, 6, 1) };
}

function stripes(colour: string, ratio: number, apart: number, thick: number): CanvasPattern {
  const tile = document.createElement("canvas");
  const edge = Math.round(apart * ratio);
  tile.width = tile.height = edge;
  const context = tile.getContext("2d");
  if (!context) throw new Error("this browser has no canvas");
  context.strokeStyle = colour;
  context.lineWidth = thick * ratio;
  context.lineCap = "square";
  for (const offset of [-edge, 0, edge]) {
    context.beginPath();
    context.moveTo(offset, edge);
    context.lineTo(offset + edge, 0);
    context.stroke();
  }
  const pattern = context.createPattern(tile, "repeat");
  if (!pattern) throw new Error("this browser has no patterns");
  // The tile is in pixels of the screen, and what it fills is not.
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

export interface Scene {
  rows: Rows;
  lanes: readonly LaneModel[];
  gaps: GapModel[];
  scale: Scale;
  now: number;
  /** The first moment of the log: before it nothing was recorded. */
  oldest: number;
  /** What was loaded: beyond it the page does not know yet. */
  covers: Range;
  entry: number | null;
  against: number | null;
  cursor: { lane: string; seq: number | null } | null;
  hover: { lane: number; mark: number } | null;
  zone: Zone;
}

/** The rows from `top` for `height`. The canvas stands at `top` of the content. */
export function drawLanes(context: CanvasRenderingContext2D, sheet: Sprites, scene: Scene, top: number, height: number): void {
  const { palette: colours } = sheet;
  const { scale, rows } = scene;
  context.clearRect(0, 0, scale.width, height);
  context.lineWidth = 1;
  context.fillStyle = colours.line;
  for (const tick of ticks(scale.from, scale.to, scale.width, scene.zone)) context.fillRect(Math.round(toX(scale, tick.time)), 0, 1, height);

  const [first, last] = rowsBetween(rows, top, top + height);
  for (let index = first; index < last; index += 1) {
    const row = rows.rows[index];
    if (!row) continue;
    const y = row.y - top;
    if (row.kind === "namespace") {
      context.fillStyle = colours.line;
      context.fillRect(0, y + ROW - 1, scale.width, 1);
      continue;
    }
    const lane = scene.lanes[row.index];
    if (lane) drawLane(context, sheet, scene, lane, row.index, y);
  }

  // What was not asked for is veiled, until it was.
  const [left, right] = [toX(scale, scene.covers.from), toX(scale, scene.covers.to)];
  if (left > 0) veil(context, colours, 0, Math.min(left, scale.width), height);
  if (right < scale.width) veil(context, colours, Math.max(0, right), scale.width, height);

  // Before the log began.
  const begin = toX(scale, scene.oldest);
  if (begin > 0) {
    context.fillStyle = sheet.unrecorded;
    context.fillRect(0, 0, Math.min(begin, scale.width), height);
  }
  const present = toX(scale, scene.now);
  if (present >= 0 && present <= scale.width) {
    context.fillStyle = colours.accent;
    context.fillRect(Math.round(present), 0, 1, height);
  }
}

function veil(context: CanvasRenderingContext2D, colours: Palette, from: number, to: number, height: number): void {
  context.globalAlpha = 0.6;
  context.fillStyle = colours.ground;
  context.fillRect(from, 0, to - from, height);
  context.globalAlpha = 1;
}

function drawLane(context: CanvasRenderingContext2D, sheet: Sprites, scene: Scene, lane: LaneModel, index: number, y: number): void {
  const { palette: colours } = sheet;
  const { scale } = scene;
  const middle = y + ROW / 2;
  if (scene.cursor?.lane === lane.lane.id) {
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.1;
    context.fillRect(0, y, scale.width, ROW);
    context.globalAlpha = 1;
  }
  // Watched and quiet: a thin line, for as long as the log goes.
  context.fillStyle = colours.line;
  const begin = Math.max(0, toX(scale, scene.oldest));
  const end = Math.min(scale.width, toX(scale, scene.now));
  if (end > begin) context.fillRect(begin, Math.round(middle), end - begin, 1);

  const unknown = gapsOf(lane.lane, scene.gaps);
  const hollow: [number, number][] = [];
  for (const box of bars(lane, scale, unknown, scene.now)) {
    const [top, thick] = [middle - 5, 10];
    const wide = Math.max(1.5, box.end - box.x);
    context.fillStyle = colours.bar;
    if (box.hollow.length === 0) context.fillRect(box.x, top, wide, thick);
    else {
      let from = box.x;
      for (const [a, b] of box.hollow) {
        if (a > from) context.fillRect(from, top, a - from, thick);
        from = Math.max(from, b);
      }
      if (from < box.end) context.fillRect(from, top, box.end - from, thick);
      for (const [a, b] of box.hollow) hollow.push([a, b]);
    }
    context.fillStyle = colours.edge;
    if (box.open && box.x > -2) {
      // Open: three fading pieces instead of an edge, because nobody knows since when.
      context.fillStyle = colours.bar;
      for (const piece of [1, 2, 3]) context.fillRect(box.x - piece * 5, top + piece, 3, thick - 2 * piece);
    } else if (!box.open && box.hollow.length === 0) context.fillRect(box.x, top, 2, thick);
    if (!box.lasts) context.fillRect(box.end - 2, top, 2, thick);
  }

  for (const gap of unknown) {
    const a = Math.max(-1, toX(scale, gap.from));
    const b = Math.min(scale.width + 1, toX(scale, gap.to));
    if (b < 0 || a > scale.width) continue;
    // Even the shortest is seen.
    const wide = Math.max(3, b - a);
    context.fillStyle = sheet.hatch;
    context.fillRect(a, y + 2, wide, ROW - 4);
    context.strokeStyle = colours.gap;
    context.lineWidth = 1;
    context.strokeRect(Math.round(a) + 0.5, y + 2.5, Math.max(2, Math.round(wide) - 1), ROW - 5);
  }

  // Over the hatching, because that is where most of what is inferred stands.
  for (const [a, b] of hollow) {
    context.fillStyle = colours.ground;
    context.fillRect(a, middle - 5, Math.max(3, b - a), 10);
    context.strokeStyle = colours.edge;
    context.lineWidth = 1.5;
    context.strokeRect(a + 0.75, middle - 4.25, Math.max(1.5, b - a - 1.5), 8.5);
  }

  const found = clusters(lane, scale);
  context.font = "9px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (let at = found.length - 1; at >= 0; at -= 1) {
    const cluster = found[at];
    const image = sheet.images[cluster?.look ?? 0];
    if (!cluster || !image) continue;
    // As wide as the time in which it may have happened.
    for (let mark = cluster.first; mark < cluster.first + cluster.marks; mark += 1) {
      const since = lane.lane.marks[mark]?.since;
      if (since === undefined) continue;
      const a = Math.max(-1, toX(scale, parse(since)));
      context.fillStyle = colours.muted;
      context.fillRect(a, middle + 3, Math.max(0, toX(scale, lane.times[mark] ?? 0) - a), 2);
    }
    context.drawImage(image, cluster.x - GLYPH / 2, middle - GLYPH / 2, GLYPH, GLYPH);
    const number = cluster.marks > 1 ? cluster.marks : (cluster.look & ~UNSEEN) === LOOKS.indexOf("QUIET") ? cluster.quiet : 0;
    const next = found[at + 1];
    const who = badge(lane, cluster, Math.min(next?.x ?? Infinity, scale.width) - cluster.x - 12);
    if (who !== "") {
      // A rim, as marks have it: it stands on bars and hatching.
      context.strokeStyle = colours.ground;
      context.lineWidth = 2.5;
      context.strokeText(who, cluster.x + 7, middle + 7);
      context.fillStyle = colours.text;
      context.fillText(who, cluster.x + 7, middle + 7);
    }
    if (number < 2) continue;
    if (next && next.x - cluster.x < 26) continue;
    context.fillStyle = colours.muted;
    const text = number > 999 ? "999+" : String(number);
    context.fillText(text, cluster.x + 10 + 5 * text.length > scale.width ? cluster.x - 6 - 5.5 * text.length : cluster.x + 7, middle - 6);
  }

  const ring = (seq: number, colour: string, dashed: boolean): void => {
    const mark = markIndex(lane, seq);
    if (mark < 0) return;
    context.strokeStyle = colour;
    context.lineWidth = 2;
    context.setLineDash(dashed ? [3, 2] : []);
    context.beginPath();
    context.arc(toX(scale, lane.times[mark] ?? 0), middle, 9, 0, 7);
    context.stroke();
    context.setLineDash([]);
  };
  if (scene.entry !== null) ring(scene.entry, colours.accent, false);
  if (scene.against !== null) ring(scene.against, colours.accent, true);
  if (scene.cursor?.lane === lane.lane.id && scene.cursor.seq !== null && scene.cursor.seq !== scene.entry) ring(scene.cursor.seq, colours.text, true);
  const hovered = scene.hover?.lane === index ? lane.lane.marks[scene.hover.mark] : undefined;
  if (hovered && hovered.seq !== scene.entry) ring(hovered.seq, colours.muted, false);
}

/** Marks are in the order of seq. */
export function markIndex(lane: LaneModel, seq: number): number {
  const marks = lane.lane.marks;
  let low = 0;
  let high = marks.length - 1;
  while (low <= high) {
    const middle = (low + high) >>> 1;
    const found = marks[middle]?.seq ?? 0;
    if (found === seq) return middle;
    if (found < seq) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

/** The height of a band of all that nobody knows, in pixels: below the axis, and above the bars of the strip. */
const BAND = 5;

/** Ranges without those that others cover: hatching over hatching would be louder. */
function union(ranges: readonly Range[]): Range[] {
  const whole: Range[] = [];
  for (const { from, to } of [...ranges].sort((one, other) => one.from - other.from)) {
    const last = whole.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else whole.push({ from, to });
  }
  return whole;
}

/** Hatches all that nobody knows in one band. Even the shortest is seen. */
function drawBand(context: CanvasRenderingContext2D, sheet: Sprites, scale: Scale, top: number, gaps: readonly Range[]): void {
  context.fillStyle = sheet.hatch;
  for (const gap of union(gaps)) {
    const a = Math.max(0, toX(scale, gap.from));
    const b = Math.min(scale.width, toX(scale, gap.to));
    if (b >= 0 && a <= scale.width) context.fillRect(a, top, Math.max(3, b - a), BAND);
  }
}

/** The axis, and below it a band of all gaps: those of objects that have no lane here would not be seen otherwise. */
export function drawAxis(context: CanvasRenderingContext2D, sheet: Sprites, scale: Scale, height: number, zone: Zone, gaps: readonly Range[]): void {
  const colours = sheet.palette;
  context.clearRect(0, 0, scale.width, height);
  drawBand(context, sheet, scale, height - BAND, gaps);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const tick of ticks(scale.from, scale.to, scale.width, zone)) {
    const x = Math.round(toX(scale, tick.time));
    context.fillStyle = colours.edge;
    context.fillRect(x, height - 6, 1, 6);
    context.fillStyle = tick.day ? colours.text : colours.muted;
    if (x + 44 < scale.width) context.fillText(tick.label, x + 4, height / 2);
  }
}

/**
 * The strip: how many entries of each type, by a square root, so that a storm does not flatten all else. What nobody knows is
 * above the bars and as quiet as on the lanes.
 */
export function drawStrip(
  context: CanvasRenderingContext2D, sheet: Sprites, shown: Histogram, gaps: Range[], scale: Scale, height: number, zone: Zone,
): void {
  const colours = sheet.palette;
  context.clearRect(0, 0, scale.width, height);
  const floor = height - 15;
  drawBand(context, sheet, scale, 0, gaps);
  const heights = shown.buckets.map((bucket, index) => Math.sqrt(bucket[0] + bucket[1] + bucket[2] + bucket[3] + (shown.quiet[index] ?? 0)));
  const most = Math.max(1, ...heights);
  const start = parse(shown.since);
  for (const [index, bucket] of shown.buckets.entries()) {
    const x = toX(scale, start + (index * shown.width) / 1000);
    const wide = Math.max(1, (shown.width / 1000 / (scale.to - scale.from)) * scale.width - (shown.buckets.length < scale.width / 3 ? 1 : 0));
    const quiet = shown.quiet[index] ?? 0;
    const all = bucket[0] + bucket[1] + bucket[2] + bucket[3] + quiet;
    if (all === 0) continue;
    const tall = Math.max(2, ((heights[index] ?? 0) / most) * (floor - BAND - 2));
    let y = floor;
    for (const [number, colour] of [
      [bucket[1], colours.types[1]], [bucket[0], colours.types[0]], [bucket[2], colours.types[2]], [bucket[3], colours.types[3]], [quiet, colours.looks.QUIET],
    ] as const) {
      if (number === 0) continue;
      const part = Math.max(1, (number / all) * tall);
      context.fillStyle = colour;
      // Noise is there and not in the way.
      context.globalAlpha = colour === colours.looks.QUIET ? 0.35 : 1;
      context.fillRect(x, y - part, wide, part);
      y -= part;
    }
  }
  context.globalAlpha = 1;
  context.fillStyle = colours.edge;
  context.fillRect(0, floor, scale.width, 1);
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const tick of ticks(scale.from, scale.to, scale.width, zone, 110)) {
    const x = Math.round(toX(scale, tick.time));
    context.fillStyle = colours.edge;
    context.fillRect(x, floor, 1, 4);
    context.fillStyle = colours.muted;
    if (x + 40 < scale.width) context.fillText(tick.label, x + 3, height - 6);
  }
  // What was not counted is veiled. Nothing stands there that a veil could be seen on, so it has an edge.
  const counted = shown.truncated ? toX(scale, parse(shown.truncated.before)) : 0;
  if (counted > 0) {
    veil(context, colours, 0, counted, height);
    context.fillStyle = colours.edge;
    context.fillRect(Math.round(counted) - 1, 0, 1, floor);
  }
}

/** The index of the mark that is nearest to a time. */
export function nearest(lane: LaneModel, time: number): number {
  const after = lowerBound(lane.times, time);
  const before = after - 1;
  if (before < 0) return lane.times.length > 0 ? 0 : -1;
  if (after >= lane.times.length) return before;
  return (lane.times[after] ?? 0) - time < time - (lane.times[before] ?? 0) ? after : before;
}
