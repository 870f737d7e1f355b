// The one-file form: the page with its data in it. It answers what decklog would answer, as far as the file has it, and says
// where it has not.

import {
  Refused, type Became, type Changes, type Churn, type Clusters, type Data, type Difference, type Entries, type Entry, type Histogram, type Lane, type Lanes, type Mark, type ObjectPage,
  type Overview, type State, type Summary, type Type, type Window,
} from "./api.ts";
import { gapModel, gapsOf } from "./layout.ts";
import { lineDiff } from "./linediff.ts";
import { objectName, quoted } from "./text.ts";
import { duration, parse, rfc3339 } from "./time.ts";
import { ALL, type Filters } from "./url.ts";

export interface FileData {
  overview: Overview;
  lanes: Lanes;
  histogram: Histogram;
  entries: Record<string, Omit<Entry, "neighbours"> & { neighbours?: Summary[] }>;
  churn: Churn;
  left_out: string | null;
}

interface Known {
  lane: Lane | null;
  time: number;
  summary: Summary;
  /** Quiet entries that are folded into it. */
  quiet: number;
}

export class Embedded implements Data {
  readonly embedded = true;
  readonly leftOut: string | null;
  private readonly known: Known[] = [];
  private readonly bySeq = new Map<number, Known>();
  private readonly now: number;

  constructor(private readonly file: FileData) {
    this.leftOut = file.left_out;
    // What came after its end is not in it, whenever it was written.
    this.now = Math.min(parse(file.overview.now), parse(file.lanes.until));
    for (const lane of file.lanes.lanes) {
      for (const mark of lane.marks) {
        const kept = file.entries[mark.seq]?.summary;
        this.known.push({ lane, time: parse(mark.time), summary: kept ?? summaryOf(lane, mark), quiet: mark.quiet });
      }
    }
    for (const gap of file.overview.gaps) {
      const kept = file.entries[gap.seq]?.summary;
      this.known.push({ lane: null, time: parse(gap.time), summary: kept ?? gapSummary(gap), quiet: 0 });
    }
    this.known.sort((a, b) => a.summary.seq - b.summary.seq);
    for (const entry of this.known) this.bySeq.set(entry.summary.seq, entry);
  }

  async clusters(): Promise<Clusters> {
    return { clusters: [], this: null };
  }

  async overview(): Promise<Overview> {
    // The whole log of a file is what is in it.
    const { overview, lanes } = this.file;
    const known = { ...overview, now: rfc3339(this.now), end: rfc3339(this.now) };
    return overview.oldest === null ? known : { ...known, oldest: { ...overview.oldest, time: lanes.since } };
  }

  async histogram(window: Window, buckets: number, filters: Filters): Promise<Histogram> {
    const passes = filter(filters);
    const range = this.range(window);
    const width = Math.max(1, Math.ceil(((range.to - range.from) * 1000) / buckets));
    const counts = Array.from({ length: buckets }, (): [number, number, number, number] => [0, 0, 0, 0]);
    const quiet = new Array<number>(buckets).fill(0);
    let total = 0;
    for (const { summary, time, quiet: folded } of this.known) {
      const index = Math.floor(((time - range.from) * 1000) / width);
      if (time < range.from || index >= buckets || !passes(summary)) continue;
      quiet[index] = (quiet[index] ?? 0) + folded;
      const type = summary.quiet ? -1 : (["ADDED", "MODIFIED", "DELETED", "GAP"] as const).indexOf(summary.type);
      const bucket = counts[index];
      if (bucket && type >= 0) bucket[type] = (bucket[type] ?? 0) + 1;
      total += 1;
    }
    return { since: rfc3339(range.from), until: rfc3339(range.to), width, buckets: counts, quiet, total };
  }

  async lanes(window: Window, filters: Filters): Promise<Lanes> {
    const passes = filter(filters);
    const range = this.range(window);
    const kept = this.file.lanes.lanes.flatMap((lane) => {
      if (!filtersObject(filters, lane)) return [];
      const marks = lane.marks.filter((mark) => {
        const time = parse(mark.time);
        return time >= range.from && time <= range.to && passes(this.bySeq.get(mark.seq)?.summary ?? summaryOf(lane, mark));
      });
      const there = lane.bars.filter((bar) => (bar.from === null || parse(bar.from) <= range.to) && (bar.to === null || parse(bar.to) >= range.from));
      const narrowed = filters.type.length > 0 || filters.area.length > 0;
      return marks.length > 0 || (there.length > 0 && !narrowed) ? [{ ...lane, marks, bars: there }] : [];
    });
    const ids = new Set(kept.map((lane) => lane.id));
    // A lane whose owner was filtered away stands where the owner would.
    const depths = new Map<string, number>();
    const lanes = kept.map((lane) => {
      const depth = lane.owner !== null && ids.has(lane.owner) ? (depths.get(lane.owner) ?? -1) + 1 : 0;
      depths.set(lane.id, depth);
      return { ...lane, depth };
    });
    return { ...this.file.lanes, since: rfc3339(range.from), until: rfc3339(range.to), lanes };
  }

  async entries(window: Window, filters: Filters, before: number | null): Promise<Entries> {
    const passes = filter(filters);
    const range = this.range(window);
    const found: Summary[] = [];
    for (let index = this.known.length - 1; index >= 0; index -= 1) {
      const entry = this.known[index];
      if (!entry || entry.time < range.from || entry.time > range.to || (before !== null && entry.summary.seq >= before)) continue;
      if (!passes(entry.summary)) continue;
      if (found.length === 200) return { entries: found, more: true };
      found.push(entry.summary);
    }
    return { entries: found, more: false };
  }

  async entry(seq: number): Promise<Entry> {
    const kept = this.file.entries[seq] ?? this.without(seq);
    if (!kept) throw new Refused(`entry ${seq} is not in this file: ask decklog for it, with decklog show ${seq}`, null, 404);
    const at = this.known.findIndex((entry) => entry.summary.seq === seq);
    const near = (entry: Known): boolean => entry.summary.id !== kept.summary.id && entry.summary.namespace === kept.summary.namespace;
    const before = this.known.slice(Math.max(0, at - 200), at).filter(near).slice(-5);
    const after = this.known.slice(at + 1, at + 200).filter(near).slice(0, 5);
    return { ...kept, neighbours: [...before, ...after].map((entry) => entry.summary) };
  }

  /** An entry that is in the file, and not what it changed. */
  private without(seq: number): Entry | null {
    const found = this.bySeq.get(seq);
    if (!found) return null;
    const { summary, lane } = found;
    const mine = (lane?.marks ?? []).map((mark) => mark.seq);
    const at = mine.indexOf(seq);
    return {
      summary, entry: null, diff: "", real: !summary.quiet, previous: mine[at - 1] ?? null, next: at < 0 ? null : (mine[at + 1] ?? null), yaml: "", yaml_cut: false,
      command: null, ...(summary.type === "GAP" ? {} : { missing: `What changed is not in this file: decklog show ${seq} prints it.` }),
    };
  }

  async diff(from: number, to: number): Promise<Difference> {
    const [a, b] = [await this.entry(from), await this.entry(to)];
    const same = a.summary.id === b.summary.id;
    for (const one of [a, b]) if (one.yaml === "") throw new Refused(`what entry ${one.summary.seq} changed is not in this file: ask decklog diff`, null, 404);
    if (a.yaml_cut || b.yaml_cut) throw new Refused("one of the two objects is cut in this file: ask decklog for the difference", null, 404);
    const name = `${quoted(objectName(a.summary))}${a.summary.namespace ? ` -n ${quoted(a.summary.namespace)}` : ""}`;
    return {
      from: a.summary, to: b.summary, diff: lineDiff(a.yaml, b.yaml), same_object: same,
      command: same ? `decklog diff ${name} --from ${from} --to ${to}` : null,
    };
  }

  async object(id: { resource: string; namespace: string; name: string }, at: string): Promise<ObjectPage> {
    const lane = this.file.lanes.lanes.find((one) => one.resource === id.resource && one.namespace === id.namespace && one.name === id.name);
    if (!lane) throw new Refused(`${id.resource} ${id.name} is not in this file`, null, 404);
    const mine = this.known.filter((entry) => entry.lane === lane);
    const wanted = at === "" ? Infinity : /^\d+$/.test(at) ? Number(at) : NaN;
    const limit = this.moment(at);
    this.within(limit, at);
    const then = mine.filter((entry) => (Number.isNaN(wanted) ? entry.time <= limit : entry.summary.seq <= wanted));
    // A deletion has the last state in it, and is the end of it.
    const gone = then[then.length - 1]?.summary.type === "DELETED";
    const kept = gone ? undefined : then.map((entry) => this.file.entries[entry.summary.seq]).filter((entry) => entry !== undefined).pop();
    return {
      lane, unwatched: this.file.lanes.unwatched.filter((gap) => gapsOf(lane, [gapModel(gap)]).length > 0), entries: mine.map((entry) => entry.summary).reverse(), more: false, at: kept?.summary.seq ?? null, yaml: kept?.yaml ?? null,
      yaml_cut: kept?.yaml_cut ?? false, blame: [], command: kept?.command ?? null,
    };
  }

  async state(at: string, filters: Filters): Promise<State> {
    const { time: limit, seq: newest } = this.place(at, "at");
    const objects: State["objects"] = [];
    for (const lane of this.file.lanes.lanes) {
      if (!filtersObject(filters, lane)) continue;
      const bar = lane.bars.find((one) => (one.from === null || parse(one.from) <= limit) && (one.to === null || parse(one.to) > limit));
      if (!bar) continue;
      const last = lane.marks.filter((mark) => parse(mark.time) <= limit).pop();
      objects.push({
        id: lane.id, kind: lane.kind, resource: lane.resource, namespace: lane.namespace, name: lane.name, uid: bar.uid, seq: last?.seq ?? 0,
        since: last?.time ?? bar.from ?? this.file.lanes.since, how: bar.from_how,
      });
    }
    return { at: rfc3339(limit), seq: newest, objects, truncated: 0, unknown: this.unknown(limit, filters) };
  }

  async changes(from: string, to: string, filters: Filters): Promise<Changes> {
    const [first, last] = [this.place(from, "from"), this.place(to, "at")];
    if (first.seq > last.seq) throw new Refused("from is after to; swap them", "from", 400);
    const objects: Became[] = [];
    let gone = 0;
    for (const lane of this.file.lanes.lanes) {
      if (!filtersObject(filters, lane)) continue;
      // Bars are of all entries, and marks may be those of some: bars say whether it was there.
      const at = (time: number): Lane["bars"][number] | undefined =>
        lane.bars.find((bar) => (bar.from === null || parse(bar.from) <= time) && (bar.to === null || parse(bar.to) > time));
      const [before, after] = [at(first.time), at(last.time)];
      const between = (time: string | null): boolean => time !== null && parse(time) > first.time && parse(time) <= last.time;
      if (!before && !after) {
        const lived = lane.bars.find((bar) => between(bar.to));
        if (lived && between(lived.from) && lived.from_how !== "listed") gone += 1;
        if (!lived || (between(lived.from) && lived.from_how !== "listed")) continue;
      }
      const marks = lane.marks.filter((mark) => mark.seq > first.seq && mark.seq <= last.seq);
      const real = marks.filter((mark) => mark.type !== "QUIET");
      const seen = after?.from_how === "listed" || after?.from === null;
      const became = !after ? "removed" : !before ? (seen ? "first_seen" : "added") : before.uid !== after.uid ? "replaced" : "changed";
      if (became === "changed" && real.length === 0) continue;
      const newest = marks[marks.length - 1];
      const known = lane.marks.filter((mark) => mark.seq <= first.seq);
      const end = lane.bars.filter((bar) => between(bar.to)).pop();
      const [time, how] = after
        ? became === "changed" ? [newest?.time, newest?.evidence] : [newest?.time ?? after.from, after.from_how]
        : [end?.to, end?.to_how];
      objects.push({
        id: lane.id, kind: lane.kind, resource: lane.resource, namespace: lane.namespace, name: lane.name, uid: (after ?? before ?? end)?.uid ?? "", became,
        areas: became === "changed" || became === "replaced" ? [...new Set(real.flatMap((mark) => mark.areas))] : [],
        entries: marks.reduce((sum, mark) => sum + mark.quiet + (mark.type === "QUIET" ? 0 : 1), 0),
        before: before ? (known[known.length - 1]?.seq ?? null) : null, seq: newest?.seq ?? null, time: time ?? rfc3339(last.time), how: how ?? "",
      });
    }
    const of = this.asked(filters);
    const gaps = this.file.overview.gaps.filter((gap) => gap.seq > first.seq && gap.seq <= last.seq && of({ resource: gap.resource === "" ? null : gap.resource, namespace: gap.namespace })).length;
    const end = (place: { time: number; seq: number }): Changes["from"] => ({ at: rfc3339(place.time), seq: place.seq, unknown: this.unknown(place.time, filters) });
    return { from: end(first), to: end(last), objects, came_and_went: gone, truncated: 0, gaps };
  }

  async churn(): Promise<Churn> {
    return this.file.churn;
  }

  followUrl(): null {
    return null;
  }

  /** Of what nobody knows at a moment, as far as it is of objects that are asked for. */
  private unknown(time: number, filters: Filters): State["unknown"] {
    const of = this.asked(filters);
    return this.file.lanes.unwatched.filter((gap) => (gap.from === null || parse(gap.from) <= time) && time <= parse(gap.to) && of(gap));
  }

  /** Whether a gap is of an object that is asked for. */
  private asked(filters: Filters): (gap: { resource: string | null; namespace: string }) => boolean {
    if (filters.what.length === 0 && filters.namespace.length === 0) return () => true;
    const asked = this.file.lanes.lanes.filter((lane) => filtersObject(filters, lane));
    return (gap) => asked.some((lane) => (gap.resource === null || gap.resource === lane.resource) && (gap.namespace === "" || gap.namespace === lane.namespace));
  }

  /** A moment, or that of an entry, and the newest entry that there was; without one the end of the file. */
  private place(text: string, key: string): { time: number; seq: number } {
    const wanted = /^\d+$/.test(text) ? Number(text) : null;
    const time = wanted === null ? this.moment(text) : (this.bySeq.get(wanted)?.time ?? NaN);
    if (Number.isNaN(time)) throw new Refused(`${text} is no moment of this file. Write a time such as 2026-11-20T10:30:00Z, or the number of an entry`, key, 400);
    this.within(time, text, key);
    let seq = wanted ?? 0;
    for (const known of wanted === null ? this.known : []) if (known.time <= time) seq = Math.max(seq, known.summary.seq);
    return { time: Math.min(time, this.now), seq };
  }

  private moment(text: string): number {
    if (text === "") return Infinity;
    const back = duration(text);
    return Number.isNaN(back) ? parse(text) : this.now - back;
  }

  /** Refuses a moment of which the file knows nothing. */
  private within(time: number, text: string, key = "at"): void {
    const { since } = this.file.lanes;
    // A time that was written in whole seconds is a little beside the end that it means.
    if (time === Infinity || Number.isNaN(time) || (time >= parse(since) - 1000 && time <= this.now + 1000)) return;
    throw new Refused(`${text} is not in this file, which goes from ${since} to ${rfc3339(this.now)}`, key, 404);
  }

  private range(window: Window): { from: number; to: number } {
    const read = (text: string, otherwise: number): number => {
      const found = text === "" || text === ALL ? otherwise : this.moment(text);
      if (Number.isNaN(found)) throw new Refused(`${text} is no time`, "since", 400);
      return found;
    };
    const [first, last] = [parse(this.file.lanes.since), this.now];
    const within = (time: number): number => Math.max(first, Math.min(last, time));
    return { from: within(read(window.since, first)), to: within(read(window.until, last)) };
  }
}

function summaryOf(lane: Lane, mark: Mark): Summary {
  const type: Type = mark.type === "QUIET" ? "MODIFIED" : mark.type;
  return {
    seq: mark.seq, time: mark.time, type, evidence: mark.evidence, id: lane.id, kind: lane.kind, resource: lane.resource, namespace: lane.namespace,
    name: lane.name, uid: "", areas: mark.areas, managers: mark.managers, quiet: mark.type === "QUIET", line: "",
  };
}

function gapSummary(gap: Overview["gaps"][number]): Summary {
  return {
    seq: gap.seq, time: gap.time, type: "GAP", evidence: "", id: "", kind: "", resource: gap.resource, namespace: gap.namespace, name: "", uid: "",
    areas: [], managers: [], quiet: false, line: "", gap: { why: gap.why, ...(gap.since ? { since: gap.since } : {}) },
  };
}

/** `*` and `?` stand for other characters, as in the names that commands take. */
export function glob(pattern: string, name: string): boolean {
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".");
  return new RegExp(`^${source}$`, "su").test(name);
}

function filtersObject(filters: Filters, object: { kind: string; resource: string; namespace: string; name: string }): boolean {
  if (filters.namespace.length > 0 && !filters.namespace.some((namespace) => glob(namespace, object.namespace))) return false;
  if (filters.what.length === 0) return true;
  return filters.what.some((what) => {
    const slash = what.indexOf("/");
    const kind = (slash < 0 ? what : what.slice(0, slash)).toLowerCase();
    const plural = object.resource.split(".")[0] ?? "";
    const kinds = [object.kind.toLowerCase(), object.resource.toLowerCase(), plural, objectName({ kind: object.kind, name: "" }).slice(0, -1)];
    return kinds.includes(kind) && (slash < 0 || glob(what.slice(slash + 1), object.name));
  });
}

function filter(filters: Filters): (summary: Summary) => boolean {
  if (filters.where !== "") {
    throw new Refused("a file has no CEL: filter by object, namespace, type and area here, or run decklog tail --where", "where", 400);
  }
  return (summary) => {
    if (summary.type === "GAP") {
      if (filters.type.length > 0 && !filters.type.includes("GAP")) return false;
      return filters.namespace.length === 0 || summary.namespace === "" || filters.namespace.includes(summary.namespace);
    }
    if (!filtersObject(filters, summary)) return false;
    if (filters.type.length > 0 && !filters.type.includes(summary.type)) return false;
    return filters.area.length === 0 || filters.area.some((area) => summary.areas.includes(area));
  };
}
