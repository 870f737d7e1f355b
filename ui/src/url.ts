// The URL is the view: what is not in it is not part of what two people share. It stands behind the `#`, which no browser sends
// to a server, so names of objects stay out of the logs of proxies; and a file that was opened from disk can change it, too.

import { brief, duration, parse, type Zone } from "./time.ts";

export type Page = "timeline" | "log" | "object" | "state" | "churn" | "health";

export interface Filters {
  what: string[];
  namespace: string[];
  type: string[];
  area: string[];
  /** Names of managers, with `*` for other characters. */
  by: string[];
  where: string;
  quiet: boolean;
}

export interface View {
  page: Page;
  /**
   * A duration (`2h`: counted back from now, so the page is live), a time, or `all` for the beginning of the log. "": nobody has
   * chosen yet, and the page chooses when it knows the log.
   */
  since: string;
  /** A time, or "" for now. */
  until: string;
  /** How much of the log the strip shows: a duration, or "" for all of it. */
  over: string;
  filters: Filters;
  /** The entry that is looked at, and the one that it is compared with. */
  entry: number | null;
  against: number | null;
  /** The object of the page `object`: `RESOURCE/NAMESPACE/NAME`. */
  object: string;
  /** The moment of the pages `state` and `object`: a time, a duration or a seq. */
  at: string;
  /** The moment before it, from which on the page `state` shows what became of objects; "" where it shows what was there. */
  from: string;
  /** Only objects that changed in the window, and their owners. */
  changed: boolean;
  /** The order of the lanes: causes first where it is "". */
  order: "" | "names";
  /** Owners whose objects are folded away, or unfolded where they would be folded away. */
  folded: string[];
  zone: Zone;
}

export const NO_FILTERS: Filters = { what: [], namespace: [], type: [], area: [], by: [], where: "", quiet: false };

export const START: View = {
  page: "timeline", since: "", until: "", over: "", filters: NO_FILTERS, entry: null, against: null, object: "", at: "", from: "", changed: false, order: "", folded: [], zone: "utc",
};

const PAGES: readonly Page[] = ["timeline", "log", "object", "state", "churn", "health"];
export const TYPES = ["ADDED", "MODIFIED", "DELETED", "GAP"] as const;

/** Whether an entry has a row of its own: who sent a change stands beside it, unless ACTORs are asked for. */
export function isRow(entry: { type: string }, filters: Filters): boolean {
  return entry.type !== "ACTOR" || filters.type.includes("ACTOR");
}

/** The keys of the filters, as the API takes them. */
export function filterKeys(filters: Filters): [string, string][] {
  const keys: [string, string][] = [];
  for (const what of filters.what) keys.push(["what", what]);
  for (const namespace of filters.namespace) keys.push(["namespace", namespace]);
  if (filters.type.length > 0) keys.push(["type", filters.type.join(",")]);
  if (filters.area.length > 0) keys.push(["area", filters.area.join(",")]);
  if (filters.by.length > 0) keys.push(["by", filters.by.join(",")]);
  if (filters.where !== "") keys.push(["where", filters.where]);
  if (filters.quiet) keys.push(["quiet", "1"]);
  return keys;
}

export function toHash(view: View): string {
  const keys: [string, string][] = [];
  if (view.page !== "timeline") keys.push(["page", view.page]);
  if (view.object !== "") keys.push(["object", view.object]);
  if (view.at !== "") keys.push(["at", view.at]);
  if (view.from !== "") keys.push(["from", view.from]);
  if (view.since !== "") keys.push(["since", view.since]);
  if (view.until !== "") keys.push(["until", view.until]);
  if (view.over !== "") keys.push(["over", view.over]);
  keys.push(...filterKeys(view.filters));
  if (view.entry !== null) keys.push(["entry", String(view.entry)]);
  if (view.against !== null) keys.push(["against", String(view.against)]);
  if (view.changed) keys.push(["changed", "1"]);
  if (view.order !== "") keys.push(["order", view.order]);
  for (const id of view.folded) keys.push(["fold", id]);
  if (view.zone !== "utc") keys.push(["zone", view.zone]);
  // Slashes, colons and commas mean nothing behind `#`; written out they keep the address readable in a chat.
  const text = keys.map(([key, value]) => `${key}=${encodeURIComponent(value).replace(/%2F/g, "/").replace(/%3A/g, ":").replace(/%2C/g, ",")}`).join("&");
  return text === "" ? "" : `#${text}`;
}

/** Reads what `toHash` wrote. What it does not know is left out: an address may come from another version. */
export function fromHash(hash: string): View {
  const keys = new URLSearchParams(hash.replace(/^#/, "").replace(/\+/g, "%2B"));
  const text = (key: string): string => keys.get(key) ?? "";
  const list = (key: string): string[] => keys.getAll(key).flatMap((value) => value.split(",")).filter((value) => value !== "");
  const seq = (key: string): number | null => (/^\d{1,15}$/.test(text(key)) ? Number(text(key)) : null);
  const page = PAGES.find((candidate) => candidate === text("page")) ?? "timeline";
  return {
    page,
    since: text("since"),
    until: text("until"),
    over: Number.isNaN(duration(text("over"))) ? "" : text("over"),
    filters: {
      what: keys.getAll("what").filter((value) => value !== ""),
      namespace: list("namespace"),
      type: list("type"),
      area: list("area"),
      by: list("by"),
      where: text("where"),
      quiet: text("quiet") === "1",
    },
    entry: seq("entry"),
    against: seq("against"),
    object: text("object"),
    at: text("at"),
    from: text("from"),
    changed: text("changed") === "1",
    order: text("order") === "names" ? "names" : "",
    folded: keys.getAll("fold"),
    zone: text("zone") === "local" ? "local" : "utc",
  };
}

/** A view whose range ends now moves with the time. */
export function isLive(view: View): boolean {
  return view.until === "";
}

/** The `since` of the whole log. */
export const ALL = "all";

export interface Range {
  from: number;
  to: number;
}

/** The range in milliseconds, or what is wrong with it. */
export function rangeOf(view: { since: string; until: string }, oldest: number, now: number, end = now): Range | string {
  const read = (text: string): number => {
    const back = duration(text);
    return Number.isNaN(back) ? parse(text) : now - back;
  };
  const from = view.since === "" || view.since === ALL ? oldest : read(view.since);
  const to = view.until !== "" ? read(view.until) : view.since === "" || view.since === ALL ? end : now;
  if (Number.isNaN(from)) return `since: ${view.since} is no time. Write a duration such as 2h, a time of day such as 10:30 or yesterday 10:30, or a time such as 2026-11-20T10:30:00Z`;
  if (Number.isNaN(to)) return `until: ${view.until} is no time. Write a duration such as 10m, a time of day such as 10:30 or yesterday 10:30, or a time such as 2026-11-20T10:30:00Z`;
  if (from >= to) return "until has to be later than since";
  return { from, to };
}

/** A range as the view carries it when somebody has moved it by hand: two times, so that it stays where it is. */
export function frozen(range: Range): { since: string; until: string } {
  return { since: brief(range.from), until: brief(range.to) };
}

/** `RESOURCE/NAMESPACE/NAME` in its parts. A name may hold anything, so only the first two slashes count. */
export function splitId(id: string): { resource: string; namespace: string; name: string } {
  const first = id.indexOf("/");
  const second = id.indexOf("/", first + 1);
  if (first < 0 || second < 0) return { resource: id, namespace: "", name: "" };
  return { resource: id.slice(0, first), namespace: id.slice(first + 1, second), name: id.slice(second + 1) };
}
