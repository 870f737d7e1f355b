// What the page asks and what it is answered: `/api/v1` of `decklog run` and `decklog ui`. Times are RFC 3339 in UTC.

import type { Filters, View } from "./url.ts";
import { ALL, filterKeys } from "./url.ts";

export type Type = "ADDED" | "MODIFIED" | "DELETED" | "GAP" | "ACTOR";

export interface Source {
  name: string;
  resource: string;
  namespace: string;
  state: string;
  /** The state as `decklog status` prints it: `was watching` where no daemon runs. */
  says: string;
  detail: string;
  since: string | null;
  good_at: string | null;
  gaps: number;
  objects: number;
}

export interface Sink {
  name: string;
  kind: string;
  state: string;
  says: string;
  detail: string;
  cursor: number;
  lag: number;
  delivered_at: string | null;
}

export interface Overview {
  v: number;
  version: string;
  cluster: { name: string; uid: string };
  epoch: string;
  cursor: string;
  oldest: { seq: number; time: string } | null;
  head: { seq: number; time: string } | null;
  now: string;
  /** Up to when the whole log is looked at: now, or soon after the last entry where no daemon runs. */
  end: string;
  mode: "daemon" | "journal" | "file";
  /** `since`: the last moment of which something is known, where none runs. */
  daemon: { running: boolean; since: string | null };
  /** What a file is about, as it was asked for. */
  asked?: Asked;
  sources: Source[];
  sinks: Sink[];
  alarms: { name: string; text: string; since: string | null }[];
  gaps: { seq: number; time: string; since: string | null; why: string; resource: string; namespace: string; name?: string }[];
  kinds: { kind: string; resource: string; namespaced: boolean }[];
  namespaces: string[];
  size: number;
}

export interface Asked {
  objects: string[];
  namespaces: string[];
  types: string[];
  areas: string[];
  by: string[];
  since: string | null;
  until: string | null;
  where: string | null;
  quiet: boolean;
}

export interface Histogram {
  since: string;
  until: string;
  /** In microseconds. */
  width: number;
  /** ADDED, MODIFIED, DELETED, GAP. */
  buckets: [number, number, number, number][];
  quiet: number[];
  total: number;
  /** What is older was not counted, because it would have taken too long. */
  truncated?: { before: string };
}

export interface Bar {
  uid: string;
  from: string | null;
  from_how: "watched" | "listed" | "inferred" | "recovered" | "before";
  to: string | null;
  to_how: "watched" | "inferred" | "recovered" | "open";
}

export interface Mark {
  seq: number;
  time: string;
  /** Earliest time at which it happened, where that is not known exactly. */
  since?: string;
  type: Type | "QUIET";
  evidence: string;
  areas: string[];
  managers: string[];
  /** Why nobody is named, in a few words. */
  unnamed?: string;
  /** How many quiet entries are folded into this one. */
  quiet: number;
}

export interface Lane {
  id: string;
  kind: string;
  resource: string;
  namespace: string;
  name: string;
  owner: string | null;
  depth: number;
  /** What its changes are, where one of them is a cause. */
  role?: "cause" | "repeated" | "controller";
  bars: Bar[];
  marks: Mark[];
  quiet: number;
}

export interface Unwatched {
  /** null: of every resource. */
  resource: string | null;
  /** "": of every namespace. */
  namespace: string;
  /** The one object that it is about; all without one. */
  name?: string;
  from: string | null;
  to: string;
  why: string;
  /** The GAP, or null where it lasts: a source that is not watched at the moment. */
  seq: number | null;
}

export interface Lanes {
  since: string;
  until: string;
  cursor: string;
  /** `before`: what is older was not looked at, because it would have taken too long. */
  truncated: { lanes: number; marks: number; marks_before?: string; causes_before?: string; unwatched?: number; before?: string } | null;
  lanes: Lane[];
  unwatched: Unwatched[];
}

/** Who sent the request that made a change, as the API server's audit log has it. */
export interface Actor {
  user: string;
  impersonated_by?: string;
  agent?: string;
  addresses?: string[];
  verb: string;
  subresource?: string;
  certainty: string;
  audit_ids?: string[];
}

/** What an object is called, and which of those of that name it is. */
export interface OneObject {
  id: string;
  kind: string;
  resource: string;
  namespace: string;
  name: string;
  uid: string;
}

export interface Summary extends OneObject {
  seq: number;
  time: string;
  happened?: string;
  /** Latest time at which it happened, where that is earlier than `time`. */
  at?: string;
  /** Earliest time, where it is not known exactly. */
  since?: string;
  type: Type;
  evidence: string;
  areas: string[];
  managers: string[];
  /** Why nobody is named, in a few words. */
  unnamed?: string;
  quiet: boolean;
  line: string;
  gap?: { why: string; from?: string; to?: string; since?: string };
  /** Of a change where it is known, and of an ACTOR. */
  actor?: Actor;
  /** The entry whose sender an ACTOR names. */
  of?: number;
  /** The storage rewrite that it is the last entry of, where it stands for all of them. */
  rewrite?: Rewrite;
}

/** Many objects that were stored again, with nothing in them changed. */
export interface Rewrite {
  resource: string;
  /** Only where all of them are in one. */
  namespace?: string;
  /** Only where the log names one. */
  by?: string;
  objects: number;
  writes: number;
  since: string;
  until: string;
  seq: number;
}

export interface Entries {
  entries: Summary[];
  more: boolean;
  /** Where to go on, which may be beyond the last entry that passed. */
  reached?: number | null;
}

export interface Manager {
  manager: string;
  operation?: string;
  subresource?: string;
  time?: string;
  by?: string;
}

export interface Entry {
  summary: Summary;
  /** null where it is too long. */
  entry: { managers?: Manager[]; change?: { managers?: Manager[] }; [key: string]: unknown } | null;
  diff: string;
  diff_cut?: boolean;
  /** Why nobody is named, and what would know it. */
  unnamed?: string;
  real: boolean;
  /** What is behind it, as `decklog why` says it: the sync, the revision, who started it. */
  origin?: string[];
  previous: number | null;
  next: number | null;
  neighbours?: Summary[];
  yaml: string;
  yaml_cut: boolean;
  command: string | null;
  /** The command that undoes this change. */
  undo?: string;
}

export interface Difference {
  from: Summary;
  to: Summary;
  diff: string;
  diff_cut?: boolean;
  same_object: boolean;
  command: string | null;
}

export interface Blame {
  path: string;
  value: string;
  manager: string;
  operation: string;
  unnamed?: string;
  seq: number | null;
  time: string | null;
}

export interface ObjectPage {
  lane: Lane;
  /** When nobody knew of it. */
  unwatched: Unwatched[];
  entries: Summary[];
  more: boolean;
  at: number | null;
  yaml: string | null;
  yaml_cut: boolean;
  blame: Blame[];
  blame_cut?: boolean;
  command: string | null;
}

export interface StateObject extends OneObject {
  seq: number;
  since: string | null;
  how: string;
}

export interface State {
  at: string;
  seq: number;
  objects: StateObject[];
  truncated: number;
  /** Of what nobody knows then. */
  unknown: Unwatched[];
}

export interface Became extends OneObject {
  /** `first_seen`: it is there, and nothing is known of it at the first moment. */
  became: "added" | "removed" | "changed" | "replaced" | "first_seen";
  areas: string[];
  /** So many entries record it. */
  entries: number;
  /** The entry with the object as it was at the first moment. */
  before: number | null;
  /** Its last entry between the moments; null in a file that was written without it. */
  seq: number | null;
  time: string;
  how: string;
}

export interface Changes {
  from: { at: string; seq: number; unknown: Unwatched[] };
  to: { at: string; seq: number; unknown: Unwatched[] };
  objects: Became[];
  came_and_went: number;
  truncated: number;
  /** So many gaps lie between, in which more may have happened. */
  gaps: number;
}

/** The clusters of one decklog, and which of them this page is of; none where it has one alone. */
export interface Clusters {
  clusters: { name: string; running: boolean; trouble: string | null }[];
  this: string | null;
}

export interface Churn {
  since: string;
  until: string;
  writers: { id: string; kind: string; namespace: string; name: string; manager: string; writes: number; useless: number; class: string; text: string }[];
  fights: { id: string; kind: string; namespace: string; name: string; path: string; managers: string[]; writes: number; turns: number; last: number }[];
  /** Their writes are of no writer. */
  rewrites?: Rewrite[];
  /** Counted for a part of the window, its beginning, or without the writers for which there was no room. */
  truncated: boolean;
}

/** What went wrong, as one sentence that says what to do, and the key of the query that it is about. */
export class Refused extends Error {
  constructor(message: string, readonly key: string | null, readonly status: number) {
    super(message);
  }
}

export type Order = View["order"];

export interface Window {
  since: string;
  until: string;
}

/** Where the page has its data from: decklog, or the file that it is itself. */
export interface Data {
  readonly embedded: boolean;
  clusters(signal?: AbortSignal): Promise<Clusters>;
  overview(signal?: AbortSignal): Promise<Overview>;
  histogram(window: Window, buckets: number, filters: Filters, signal?: AbortSignal): Promise<Histogram>;
  lanes(window: Window, filters: Filters, order: Order, signal?: AbortSignal): Promise<Lanes>;
  entries(window: Window, filters: Filters, before: number | null, signal?: AbortSignal): Promise<Entries>;
  entry(seq: number, signal?: AbortSignal): Promise<Entry>;
  diff(from: number, to: number, signal?: AbortSignal): Promise<Difference>;
  object(id: { resource: string; namespace: string; name: string }, at: string, signal?: AbortSignal): Promise<ObjectPage>;
  state(at: string, filters: Filters, signal?: AbortSignal): Promise<State>;
  changes(from: string, to: string, filters: Filters, signal?: AbortSignal): Promise<Changes>;
  churn(window: Window, signal?: AbortSignal): Promise<Churn>;
  /** The address of the stream of new entries, or null where nothing follows. */
  followUrl(after: string, filters: Filters): string | null;
  /** A sentence on what is not in the data, for people to see. */
  readonly leftOut: string | null;
}

export const LANES = 500;
export const MARKS = 10_000;
export const PAGE = 200;
/** So many writers, and so many fights, are in an answer at most. It does not say how many more there are. */
export const LISTED = 100;

export class Remote implements Data {
  readonly embedded = false;
  readonly leftOut = null;

  // Relative, so that the page works below a path of a proxy.
  constructor(private readonly base = "api/v1/") {}

  clusters(signal?: AbortSignal): Promise<Clusters> {
    return this.get("clusters", [], signal);
  }

  overview(signal?: AbortSignal): Promise<Overview> {
    return this.get("overview", [], signal);
  }

  histogram(window: Window, buckets: number, filters: Filters, signal?: AbortSignal): Promise<Histogram> {
    return this.get("histogram", [...times(window), ["buckets", String(buckets)], ...filterKeys(filters)], signal);
  }

  lanes(window: Window, filters: Filters, order: Order, signal?: AbortSignal): Promise<Lanes> {
    return this.get("lanes", [...times(window), ...filterKeys(filters), ...(order === "" ? [] : [["order", order] as [string, string]]), ["lanes", String(LANES)], ["marks", String(MARKS)]], signal);
  }

  entries(window: Window, filters: Filters, before: number | null, signal?: AbortSignal): Promise<Entries> {
    const from: [string, string][] = before === null ? [] : [["before", String(before)]];
    return this.get("entries", [...times(window), ...filterKeys(filters), ...from, ["limit", String(PAGE)]], signal);
  }

  entry(seq: number, signal?: AbortSignal): Promise<Entry> {
    return this.get("entry", [["seq", String(seq)]], signal);
  }

  diff(from: number, to: number, signal?: AbortSignal): Promise<Difference> {
    return this.get("diff", [["from", String(from)], ["to", String(to)]], signal);
  }

  object(id: { resource: string; namespace: string; name: string }, at: string, signal?: AbortSignal): Promise<ObjectPage> {
    const keys: [string, string][] = [["resource", id.resource], ["namespace", id.namespace], ["name", id.name]];
    if (at !== "") keys.push(["at", at]);
    return this.get("object", keys, signal);
  }

  state(at: string, filters: Filters, signal?: AbortSignal): Promise<State> {
    const narrow = filterKeys({ ...filters, type: [], area: [], by: [], where: "", quiet: false });
    return this.get("state", [...(at === "" ? [] : [["at", at] as [string, string]]), ...narrow, ["limit", "1000"]], signal);
  }

  changes(from: string, to: string, filters: Filters, signal?: AbortSignal): Promise<Changes> {
    const narrow = filterKeys({ ...filters, type: [], area: [], by: [], where: "", quiet: false });
    return this.get("changes", [["from", from], ...(to === "" ? [] : [["to", to] as [string, string]]), ...narrow, ["limit", "1000"]], signal);
  }

  churn(window: Window, signal?: AbortSignal): Promise<Churn> {
    return this.get("churn", times(window), signal);
  }

  followUrl(after: string, filters: Filters): string {
    return `${this.base}follow?${query([["after", after], ...filterKeys(filters)])}`;
  }

  private async get<T>(path: string, keys: [string, string][], signal?: AbortSignal): Promise<T> {
    let response: Response;
    try {
      const address = keys.length > 0 ? `${this.base}${path}?${query(keys)}` : `${this.base}${path}`;
      response = await fetch(address, { ...(signal ? { signal } : {}), headers: { accept: "application/json" }, cache: "no-store" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Refused("decklog does not answer. See whether it runs, and whether this address still leads to it", null, 0);
    }
    if (response.ok) return (await response.json()) as T;
    let answered: { error?: unknown; key?: unknown } = {};
    try {
      answered = (await response.json()) as typeof answered;
    } catch {
      // Not decklog's own answer, as from a proxy: its status is all there is to say.
    }
    const words = typeof answered.error === "string" ? answered.error : `the answer was HTTP ${response.status}`;
    throw new Refused(words, typeof answered.key === "string" ? answered.key : null, response.status);
  }
}

function times(window: Window): [string, string][] {
  const keys: [string, string][] = [];
  if (window.since !== "" && window.since !== ALL) keys.push(["since", window.since]);
  if (window.until !== "") keys.push(["until", window.until]);
  return keys;
}

function query(keys: [string, string][]): string {
  return new URLSearchParams(keys).toString();
}
