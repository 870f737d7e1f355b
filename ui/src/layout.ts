// Where things stand, in numbers: no canvas and no document, so that it can be tested by itself.

import type { Bar, Lane, Mark, Summary, Unwatched } from "./api.ts";
import { plain } from "./text.ts";
import { parse } from "./time.ts";
import type { Range } from "./url.ts";

export const ROW = 24;
/** Marks that are closer than this share one glyph: a glyph is nine pixels wide. */
export const BIN = 6;
/** How far from a mark a pointer may be. */
export const REACH = 8;

// ---- what a mark looks like --------------------------------------------------------------------------------------------

/** The looks of a mark, the most telling first: where several share a place, the first is drawn. */
export const LOOKS = ["DELETED", "ADDED", "spec", "data", "other", "metadata", "status", "nothing", "QUIET"] as const;
export type Look = (typeof LOOKS)[number];

/** The areas that have a colour of their own, in the order of the legend. All others are `other`. */
export const AREAS = ["spec", "data", "metadata", "status"] as const;

/** Set in a look where nobody saw it happen: listed, or inferred. Such a mark is hollow. */
export const UNSEEN = 16;

export function lookOf(mark: { type: string; areas: string[] }): Look {
  if (mark.type === "DELETED" || mark.type === "ADDED" || mark.type === "QUIET") return mark.type;
  const areas = mark.areas.filter((area) => area !== "managedFields");
  if (areas.length === 0) return "nothing";
  const has = (area: string): boolean => areas.includes(area);
  if (has("spec")) return "spec";
  if (has("data") || has("binaryData") || has("stringData")) return "data";
  if (areas.some((area) => area !== "metadata" && area !== "status")) return "other";
  return has("metadata") ? "metadata" : "status";
}

// ---- lanes, ready to be drawn ------------------------------------------------------------------------------------------

export interface LaneModel {
  lane: Lane;
  /** Of its marks, in the same order. */
  times: Float64Array;
  looks: Uint8Array;
  bars: { from: number; to: number; bar: Bar }[];
}

/** Times that are open reach beyond every window. */
export const BEFORE = -8.64e15;
export const AFTER = 8.64e15;

export function model(lane: Lane): LaneModel {
  const times = new Float64Array(lane.marks.length);
  const looks = new Uint8Array(lane.marks.length);
  for (const [index, mark] of lane.marks.entries()) {
    times[index] = parse(mark.time);
    looks[index] = LOOKS.indexOf(lookOf(mark)) | (mark.evidence === "listed" || mark.evidence === "inferred" ? UNSEEN : 0);
  }
  const bars = lane.bars.map((bar) => ({ bar, from: bar.from === null ? BEFORE : parse(bar.from), to: bar.to === null ? AFTER : parse(bar.to) }));
  return { lane, times, looks, bars };
}

/** The first index whose time is not before `time`. */
export function lowerBound(times: Float64Array, time: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((times[middle] ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface Scale extends Range {
  /** In pixels. */
  width: number;
}

export function toX(scale: Scale, time: number): number {
  return ((time - scale.from) / (scale.to - scale.from)) * scale.width;
}

export function toTime(scale: Scale, x: number): number {
  return scale.from + (x / scale.width) * (scale.to - scale.from);
}

export interface Cluster {
  x: number;
  /** Index into LOOKS, and UNSEEN. */
  look: number;
  /** The index of the first mark, and of the one that is drawn. */
  first: number;
  mark: number;
  /** How many marks share the place, and how many quiet entries are folded into them. */
  marks: number;
  quiet: number;
}

/**
 * The marks of a lane within a scale, those that share a place as one. Places are cut by time and not by pixels of the
 * window, so that a cluster keeps its marks while the window moves.
 */
export function clusters(lane: LaneModel, scale: Scale): Cluster[] {
  const size = ((scale.to - scale.from) / scale.width) * BIN;
  const found: Cluster[] = [];
  let bin = NaN;
  const end = lane.times.length;
  for (let index = lowerBound(lane.times, scale.from - 2 * size); index < end; index += 1) {
    const time = lane.times[index] ?? 0;
    if (time > scale.to + 2 * size) break;
    const look = lane.looks[index] ?? 0;
    const folded = lane.lane.marks[index]?.quiet ?? 0;
    const place = Math.floor(time / size);
    const last = found[found.length - 1];
    if (last !== undefined && place === bin) {
      last.marks += 1;
      last.quiet += folded;
      if ((look & ~UNSEEN) < (last.look & ~UNSEEN)) {
        last.look = look;
        last.mark = index;
        last.x = toX(scale, time);
      }
    } else {
      found.push({ x: toX(scale, time), look, first: index, mark: index, marks: 1, quiet: folded });
      bin = place;
    }
  }
  return found;
}

/** Characters of a badge, and the width of one in pixels, at most. */
const BADGE = 24;
const CHARACTER = 5.4;
/** Looks before this one, and below UNSEEN, are of what people ask for. */
const STATUS = LOOKS.indexOf("status");

/**
 * The badge beside a mark, which says who wrote, or why nobody is named: of what people ask for, where it fits in front of the
 * next mark. Objects write their status all the time, and what was found on a list was written by somebody else.
 */
export function badge(lane: LaneModel, cluster: Cluster, room: number): string {
  const tells = (look: number): boolean => look < STATUS;
  const { first, marks } = cluster;
  const mark = lane.lane.marks[cluster.mark];
  if (mark === undefined || !tells(cluster.look)) return "";
  const names = new Set(mark.managers);
  for (let index = first; index < first + marks; index += 1) {
    if (tells(lane.looks[index] ?? STATUS)) for (const name of lane.lane.marks[index]?.managers ?? []) names.add(name);
  }
  const [name] = names;
  const shown = name === undefined ? (mark.type === "DELETED" || mark.unnamed === undefined ? "" : `(${mark.unnamed})`) : names.size > 1 ? `${name} +${names.size - 1}` : name;
  const text = plain(shown, BADGE);
  return text.length * CHARACTER <= room ? text : "";
}

export interface BarBox {
  x: number;
  end: number;
  /** The left end is open: it was there before, nobody knows since when. */
  open: boolean;
  /** It goes on beyond what is known so far. */
  lasts: boolean;
  /** Where it is hollow: inferred from states before and after a gap. */
  hollow: [number, number][];
  bar: Bar;
}

/** The bars of a lane in pixels, cut to the window; `now` is where what is there still ends. */
export function bars(lane: LaneModel, scale: Scale, gaps: Range[], now: number): BarBox[] {
  const found: BarBox[] = [];
  for (const { bar, from, to } of lane.bars) {
    const end = Math.min(to, now);
    if (from > scale.to || end < scale.from) continue;
    const hollow: [number, number][] = [];
    const at = (time: number): number => Math.max(-2, Math.min(scale.width + 2, toX(scale, time)));
    if (bar.from_how === "inferred") {
      const gap = gaps.find((range) => range.from <= from && from <= range.to);
      const seen = lane.times[lowerBound(lane.times, from + 0.001)];
      hollow.push([at(from), at(Math.min(end, gap && gap.to > from ? gap.to : (seen ?? end)))]);
    }
    if (bar.to_how === "inferred" && to !== AFTER) {
      const gap = gaps.find((range) => range.from <= to && to <= range.to);
      const before = lane.times[lowerBound(lane.times, to) - 1];
      hollow.push([at(Math.max(from, gap && gap.from < to ? gap.from : (before ?? from))), at(to)]);
    }
    found.push({ x: at(from), end: at(end), open: bar.from_how === "listed" || bar.from_how === "before", lasts: to > now, hollow, bar });
  }
  return found;
}

/** The ranges of which nobody knows, for one lane: of none from before its object was born, where somebody saw that. */
export function gapsOf(lane: { resource: string; namespace: string; name: string; bars: readonly Bar[] }, unwatched: GapModel[]): GapModel[] {
  const first = lane.bars[0];
  const born = first !== undefined && first.from !== null && SEEN.includes(first.from_how) ? parse(first.from) : BEFORE;
  return unwatched.flatMap((gap) => {
    const isIts = (gap.resource === null || gap.resource === lane.resource) && (gap.namespace === "" || gap.namespace === lane.namespace) && (gap.name === undefined || gap.name === lane.name);
    if (!isIts || gap.to <= born) return [];
    return gap.from < born ? [{ ...gap, from: born }] : [gap];
  });
}

/** How the moment at which an object came is known exactly. */
const SEEN: readonly string[] = ["watched", "recovered"];

export interface GapModel extends Range {
  resource: string | null;
  namespace: string;
  /** The one object that it is about; all without one. */
  name?: string;
  why: string;
  /** The GAP entry, or null where nobody knows yet, because a source is not watched at the moment. */
  seq: number | null;
}

export function gapModel(gap: Unwatched): GapModel {
  return { from: gap.from === null ? BEFORE : parse(gap.from), to: parse(gap.to), resource: gap.resource, namespace: gap.namespace, ...(gap.name === undefined ? {} : { name: gap.name }), why: gap.why, seq: gap.seq };
}

// ---- rows --------------------------------------------------------------------------------------------------------------

export type Row =
  | { kind: "namespace"; namespace: string; y: number }
  | { kind: "lane"; index: number; y: number; depth: number; children: number; folded: boolean; namespace: string };

export interface Rows {
  rows: Row[];
  height: number;
}

/** Whether something of a mark is a change: what a first list found was there before. */
export function isChange(mark: Pick<Mark, "type" | "evidence">): boolean {
  return mark.type !== "QUIET" && !(mark.type === "ADDED" && mark.evidence === "listed");
}

/** How lanes are laid out beyond what each of them says. */
export interface Layout {
  onlyChanged?: boolean;
  /** In the order of the answer; otherwise the trees stand below the names of their namespaces. */
  inOrder?: boolean;
  /** What an owner owns is folded away where none of it has a cause. */
  foldsDerived?: boolean;
}

/**
 * Lanes in their trees. Lanes come as a tree in preorder; what a folded owner owns is left out, with its number. `toggled` are
 * the owners that are unfolded or folded against the rule.
 */
export function layOut(lanes: readonly Lane[], toggled: ReadonlySet<string>, { onlyChanged = false, inOrder = false, foldsDerived = false }: Layout = {}): Rows {
  interface Tree {
    namespace: string;
    members: number[];
  }
  const trees: Tree[] = [];
  // From the end, because what is owned comes after its owner: an owner stays for what it owns.
  const stays = new Array<boolean>(lanes.length).fill(true);
  if (onlyChanged) {
    let keepAbove = 0;
    for (let index = lanes.length - 1; index >= 0; index -= 1) {
      const lane = lanes[index];
      if (!lane) continue;
      stays[index] = lane.depth < keepAbove || lane.marks.some(isChange);
      keepAbove = stays[index] ? lane.depth : Math.min(keepAbove, lane.depth);
    }
  }
  for (const [index, lane] of lanes.entries()) {
    if (!stays[index]) continue;
    const last = trees[trees.length - 1];
    if (lane.depth > 0 && last) last.members.push(index);
    else trees.push({ namespace: lane.namespace, members: [index] });
  }
  const namespaces = new Map<string, Tree[]>();
  for (const tree of trees) {
    const known = namespaces.get(tree.namespace);
    if (known) known.push(tree);
    else namespaces.set(tree.namespace, [tree]);
  }
  const several = namespaces.size > 1;
  const groups: [string, Tree[]][] = inOrder ? [["", trees]] : [...namespaces];
  const rows: Row[] = [];
  let y = 0;
  for (const [namespace, members] of groups) {
    if (several && !inOrder) {
      rows.push({ kind: "namespace", namespace, y });
      y += ROW;
    }
    for (const tree of members) {
      let hiddenBelow = Infinity;
      for (const [position, index] of tree.members.entries()) {
        const lane = lanes[index];
        if (!lane) continue;
        if (lane.depth > hiddenBelow) continue;
        hiddenBelow = Infinity;
        let children = 0;
        let derived = foldsDerived;
        for (let next = position + 1; next < tree.members.length; next += 1) {
          if ((lanes[tree.members[next] ?? -1]?.depth ?? 0) <= lane.depth) break;
          children += 1;
          if (lanes[tree.members[next] ?? -1]?.role !== undefined) derived = false;
        }
        const isFolded = children > 0 && derived !== toggled.has(lane.id);
        if (isFolded) hiddenBelow = lane.depth;
        rows.push({ kind: "lane", index, y, depth: lane.depth, children, folded: isFolded, namespace: inOrder && several && lane.depth === 0 ? lane.namespace : "" });
        y += ROW;
      }
    }
  }
  return { rows, height: y };
}

/** The rows that a part of the height shows, as a half-open range of indices. Every row is as high as every other. */
export function rowsBetween(rows: Rows, top: number, bottom: number): [number, number] {
  return [Math.max(0, Math.floor(top / ROW)), Math.min(rows.rows.length, Math.ceil(bottom / ROW))];
}

export type Hit =
  | { kind: "mark"; lane: number; cluster: Cluster }
  | { kind: "gap"; lane: number; gap: GapModel }
  | { kind: "lane"; lane: number }
  | null;

/** What is under a point of the plot. A mark wins over the hatching that it stands in. */
export function hit(rows: Rows, lanes: readonly LaneModel[], gaps: GapModel[], scale: Scale, x: number, y: number): Hit {
  const row = rows.rows[Math.floor(y / ROW)];
  if (!row || row.kind !== "lane") return null;
  const lane = lanes[row.index];
  if (!lane) return null;
  let nearest: Cluster | null = null;
  for (const cluster of clusters(lane, scale)) {
    const away = Math.abs(cluster.x - x);
    if (away <= REACH && (nearest === null || away < Math.abs(nearest.x - x))) nearest = cluster;
  }
  if (nearest) return { kind: "mark", lane: row.index, cluster: nearest };
  const time = toTime(scale, x);
  const gap = gapsOf(lane.lane, gaps).find((range) => range.from <= time && time <= range.to);
  if (gap) return { kind: "gap", lane: row.index, gap };
  return { kind: "lane", lane: row.index };
}

// ---- moving through time -----------------------------------------------------------------------------------------------

/** Less than this says nothing: times have microseconds. */
export const LEAST_SPAN = 0.1;

export function zoom(range: Range, about: number, factor: number): Range {
  const size = range.to - range.from;
  const wanted = Math.max(LEAST_SPAN, Math.min(100 * 365 * 86_400_000, size * factor));
  const share = (about - range.from) / size;
  return { from: about - share * wanted, to: about + (1 - share) * wanted };
}

export function shift(range: Range, by: number): Range {
  return { from: range.from + by, to: range.to + by };
}

// ---- live --------------------------------------------------------------------------------------------------------------

function writer(of: Summary): Pick<Mark, "managers" | "unnamed"> {
  return of.unnamed === undefined ? { managers: of.managers } : { managers: of.managers, unnamed: of.unnamed };
}

/** When an entry happened, in the order of the log. */
function moment(of: Summary, last: Mark | undefined): Pick<Mark, "time" | "since"> {
  const at = of.at ?? of.time;
  if (last && at < last.time) return { time: last.time };
  return of.since === undefined ? { time: at } : { time: at, since: of.since };
}

/**
 * Adds an entry that came over the stream to the lanes. `null`: the lanes have to be loaded again, because the entry brings
 * what it does not say itself (the place of a new object in its tree, the reach of a gap).
 */
export function append(lanes: readonly Lane[], entry: Summary): Lane[] | null {
  if (entry.type === "GAP") return null;
  // It is no change of the object.
  if (entry.type === "ACTOR") return lanes as Lane[];
  const index = lanes.findIndex((lane) => lane.id === entry.id);
  const lane = lanes[index];
  if (!lane) return null;
  const last = lane.marks[lane.marks.length - 1];
  if (last && last.seq >= entry.seq) return lanes as Lane[];
  const how = entry.evidence === "inferred" ? "inferred" : entry.evidence === "recovered" ? "recovered" : "watched";
  let known = lane.bars;
  if (entry.type === "ADDED" && !known.some((bar) => bar.uid === entry.uid)) {
    known = [...known, { uid: entry.uid, from: entry.at ?? entry.time, from_how: entry.evidence === "listed" ? "listed" : how, to: null, to_how: "open" }];
  }
  if (entry.type === "DELETED") {
    known = known.map((bar) => (bar.uid === entry.uid && bar.to === null ? { ...bar, to: entry.at ?? entry.time, to_how: how } : bar));
  }
  let marks: Mark[] = lane.marks;
  if (entry.quiet) {
    if (last && last.type === "QUIET") marks = [...marks.slice(0, -1), { ...last, seq: entry.seq, ...moment(entry, last), quiet: last.quiet + 1 }];
    else marks = [...marks, { seq: entry.seq, ...moment(entry, last), type: "QUIET", evidence: entry.evidence, areas: [], ...writer(entry), quiet: 1 }];
  } else {
    const folded = last && last.type === "QUIET" ? last.quiet : 0;
    const before = folded > 0 ? marks.slice(0, -1) : marks;
    marks = [...before, { seq: entry.seq, ...moment(entry, last), type: entry.type, evidence: entry.evidence, areas: entry.areas, ...writer(entry), quiet: folded }];
  }
  const next = lanes.slice();
  next[index] = { ...lane, bars: known, marks, quiet: lane.quiet + (entry.quiet ? 1 : 0) };
  return next;
}
