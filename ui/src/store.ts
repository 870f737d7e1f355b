// What the page knows, and what it does about it. Signals, so that the canvas is drawn without a pass over the document.

import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { MARKS, Refused, Remote, type Actor, type Clusters, type Data, type Histogram, type Lanes, type Overview, type Summary } from "./api.ts";
import { Embedded, type FileData } from "./embedded.ts";
import { followInTurn, type Follower, type Heard, type Link } from "./follow.ts";
import { append, BEFORE, gapModel, layOut, model, type GapModel, type LaneModel, type Rows } from "./layout.ts";
import { brief, moment, parse, rfc3339 } from "./time.ts";
import { ALL, filterKeys, fromHash, frozen, isLive, isRow, NO_FILTERS, rangeOf, splitId, toHash, type Range, type View } from "./url.ts";

function open(): Data {
  const kept = document.getElementById("decklog-data");
  return kept ? new Embedded(JSON.parse(kept.textContent ?? "") as FileData) : new Remote();
}

export const data = open();

// ---- the view ----------------------------------------------------------------------------------------------------------

export const view = signal<View>(fromHash(location.hash));

/** Changes the view. `push`: the button Back returns from it; moves of the window replace each other. */
export function go(change: Partial<View>, push = true): void {
  const next = { ...view.peek(), ...change };
  const hash = toHash(next);
  view.value = next;
  if (hash === location.hash) return;
  const address = hash === "" ? location.pathname + location.search : hash;
  if (push) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

/** The address of a view that differs from this one: for links. */
export function linkTo(change: Partial<View>): string {
  return toHash({ ...view.value, ...change }) || "#";
}

addEventListener("popstate", () => (view.value = fromHash(location.hash)));
addEventListener("hashchange", () => (view.value = fromHash(location.hash)));

// ---- time --------------------------------------------------------------------------------------------------------------

const skew = signal(0);
const clock = signal(Date.now());
export const overview = signal<Overview | null>(null);

/** Now, by the server's clock; in a file, the moment that it was written. */
export const now = computed(() => {
  const known = overview.value;
  return known && known.mode === "file" ? parse(known.now) : clock.value + skew.value;
});

/** Where the whole log ends: a log without a daemon does not go on. */
export const end = computed(() => {
  const known = overview.value;
  return known && known.mode !== "daemon" ? parse(known.end) : now.value;
});

export const oldest = computed(() => {
  const first = overview.value?.oldest;
  return first ? parse(first.time) : now.value - 3_600_000;
});

/** While somebody drags or turns a wheel, the window is here; the view follows when it rests. */
export const moving = signal<Range | null>(null);

export const asked = computed<Range | string>(() => rangeOf(view.value, Math.min(oldest.value, end.value - 1000), now.value, end.value));

export const range = computed<Range>(() => {
  const wanted = asked.value;
  return moving.value ?? (typeof wanted === "string" ? { from: now.value - 3_600_000, to: now.value } : wanted);
});

let resting: ReturnType<typeof setTimeout> | null = null;

export function move(to: Range, after = 160): void {
  moving.value = to;
  if (resting !== null) clearTimeout(resting);
  resting = setTimeout(rest, after);
}

/** Ends a move: the window becomes the view's. */
export function rest(): void {
  if (resting !== null) clearTimeout(resting);
  resting = null;
  const to = moving.peek();
  if (!to) return;
  go(frozen(to), false);
  moving.value = null;
}

// ---- loading -----------------------------------------------------------------------------------------------------------

export interface Failure {
  message: string;
  key: string | null;
  /** It does not answer, or cannot now: what it said before is as true as it was. */
  outage: boolean;
}

export function failure(error: unknown): Failure {
  if (error instanceof Refused) return { message: error.message, key: error.key, outage: error.status === 0 || error.status === 429 || error.status >= 500 };
  // An answer that broke off.
  return { message: error instanceof Error ? error.message : String(error), key: null, outage: true };
}

export const overviewFailure = signal<Failure | null>(null);
export const clusters = signal<Clusters | null>(null);

/** Nobody has said which of several clusters is meant: the page lists them. */
export const choosing = computed(() => overview.value === null && overviewFailure.value?.key === "cluster" && (clusters.value === null || clusters.value.this === null));

async function loadClusters(): Promise<void> {
  try {
    clusters.value = await data.clusters();
  } catch {
    // The page of one cluster is whole without the names of the others.
  }
}

let asking = 0;

export async function loadOverview(): Promise<void> {
  asking += 1;
  const mine = asking;
  try {
    const known = await data.overview();
    // A later one may have come first.
    if (mine !== asking) return;
    skew.value = parse(known.now) - Date.now();
    clock.value = Date.now();
    overview.value = known;
    overviewFailure.value = null;
    // It answers, so what failed before is asked again.
    if (lanesFailure.peek()?.key === null && lanesKey.peek() !== "") void loadLanes();
    if (histogramFailure.peek()?.key === null && histogramKey.peek() !== "") void loadHistogram();
  } catch (error) {
    if (mine !== asking) return;
    overviewFailure.value = failure(error);
    if (overviewFailure.value.key === "cluster") void loadClusters();
    return;
  }
  if (clusters.peek() === null) void loadClusters();
}

export interface Loaded {
  answer: Lanes;
  models: LaneModel[];
  gaps: GapModel[];
  /** What the answer covers: beyond it nothing was asked. */
  covers: Range;
}

export const loaded = signal<Loaded | null>(null);
export const loading = signal(false);
export const lanesFailure = signal<Failure | null>(null);
export const histogram = signal<Histogram | null>(null);
export const histogramFailure = signal<Failure | null>(null);

export const rows = computed<Rows>(() => {
  const { folded, changed, order, filters } = view.value;
  const { what, type, area, by, where } = filters;
  // Who chooses changes asks to see them, whatever they follow from.
  const chooses = what.length + type.length + area.length + by.length > 0 || where !== "";
  return layOut(loaded.value?.answer.lanes ?? [], new Set(folded), { onlyChanged: changed, inOrder: order === "", foldsDerived: order === "" && !chooses });
});

/** States of a source in which nobody sees what happens. */
const BLIND = ["waiting", "listing", "recovering", "degraded"];

/**
 * What nobody knows at this moment: sources that are not watched, or all of them where no daemon runs. The answer with the
 * lanes has it, too, as of then; this is asked for again and again.
 */
const running = computed<GapModel[]>(() => {
  const known = overview.value;
  if (!known || known.mode === "file") return [];
  const found: GapModel[] = [];
  for (const source of known.sources) {
    // Of one that was never listed the answer says what nobody knows: another one may have known a part of it.
    if ((known.mode === "daemon" && !BLIND.includes(source.state)) || source.good_at === null) continue;
    const why = known.mode === "journal" ? "no daemon is running" : source.detail ? `${source.state}: ${source.detail}` : source.state;
    found.push({ from: parse(source.good_at), to: now.value, resource: source.resource, namespace: source.namespace, why, seq: null });
  }
  return found;
});

/** What an answer says that nobody knew, and what nobody knows by now. */
export function upToNow(known: GapModel[]): GapModel[] {
  if (overview.value?.mode === "file") return known;
  const rest = known.filter((gap) => gap.seq !== null || gap.why === "removed" || gap.from === BEFORE);
  // What lasts goes on while the page is looked at.
  const lasting = (gap: GapModel): boolean => gap.seq === null && gap.why !== "not_yet";
  return [...rest.map((gap) => (lasting(gap) ? { ...gap, to: Math.max(gap.to, now.value) } : gap)), ...running.value];
}

/** Where nobody knows, within what was loaded. */
export const gaps = computed<GapModel[]>(() => upToNow(loaded.value?.gaps ?? []));

/** The same over the whole log, for the strip. */
export const allGaps = computed<GapModel[]>(() => [
  // One of a single object is on its lane alone.
  ...(overview.value?.gaps ?? []).filter((gap) => gap.name === undefined).map((gap) => ({
    from: gap.since === null ? parse(gap.time) : parse(gap.since), to: parse(gap.time), resource: gap.resource === "" ? null : gap.resource, namespace: gap.namespace, why: gap.why,
    seq: gap.seq,
  })),
  ...running.value,
]);

function asLoaded(answer: Lanes, before: Loaded | null): Loaded {
  // A lane that did not change keeps its model: an entry of the stream costs one lane and not all.
  const known = new Map(before?.models.map((one) => [one.lane, one]));
  return {
    answer,
    models: answer.lanes.map((lane) => known.get(lane) ?? model(lane)),
    gaps: before && before.answer.unwatched === answer.unwatched ? before.gaps : answer.unwatched.map(gapModel),
    covers: { from: Math.max(answer.since === "" ? BEFORE : parse(answer.since), reached(answer)), to: parse(answer.until) },
  };
}

/** From when on an answer is whole: decklog looks from the newest entry back, and stops where time or room ends. */
function reached(answer: Lanes): number {
  const cut = answer.truncated;
  if (!cut) return BEFORE;
  const looked = cut.before ? parse(cut.before) : BEFORE;
  return cut.marks_before === undefined ? looked : Math.max(looked, parse(cut.marks_before));
}

let loadingLanes: AbortController | null = null;

async function loadLanes(): Promise<void> {
  loadingLanes?.abort();
  const mine = new AbortController();
  loadingLanes = mine;
  const { since, until, filters, order } = view.peek();
  const begun = Date.now();
  loading.value = true;
  try {
    const answer = await data.lanes({ since, until }, filters, order, mine.signal);
    if (mine.signal.aborted) return;
    loaded.value = asLoaded(answer, null);
    lanesFailure.value = null;
    performance.mark("decklog-lanes");
    took = Date.now() - begun;
    startFollowing(answer.cursor);
  } catch (error) {
    if (mine.signal.aborted) return;
    // Nothing is better than what another filter found.
    loaded.value = null;
    lanesFailure.value = failure(error);
    stopFollowing();
  }
  loading.value = false;
}

let loadingHistogram: AbortController | null = null;
export const BUCKETS = 240;

async function loadHistogram(): Promise<void> {
  loadingHistogram?.abort();
  const mine = new AbortController();
  loadingHistogram = mine;
  const { over, filters } = view.peek();
  try {
    const answer = await data.histogram({ since: over, until: "" }, BUCKETS, filters, mine.signal);
    if (mine.signal.aborted) return;
    histogram.value = answer;
    histogramFailure.value = null;
  } catch (error) {
    if (mine.signal.aborted) return;
    histogram.value = null;
    histogramFailure.value = failure(error);
  }
}

/** What the lanes depend on, as one text: a change of anything else of the view does not load them again. */
const lanesKey = computed(() => {
  const { page, since, until, filters, order } = view.value;
  const shown = page === "timeline" || page === "log";
  const chosen = since !== "" || until !== "";
  return overview.value && shown && chosen && typeof asked.value !== "string" ? JSON.stringify([since, until, filterKeys(filters), order, overview.value.mode]) : "";
});
const histogramKey = computed(() => {
  const { page, over, filters } = view.value;
  const shown = page === "timeline" || page === "log";
  return overview.value && shown ? JSON.stringify([over, filterKeys(filters)]) : "";
});

export function reload(): void {
  void loadOverview();
  if (lanesKey.peek() !== "") void loadLanes();
  if (histogramKey.peek() !== "") void loadHistogram();
}

/** Grows with each entry of the stream that passes, so that the log can offer to show them. */
export const changes = signal(0);

// ---- live --------------------------------------------------------------------------------------------------------------

export const link = signal<Link>("off");
/** What has come, and is not yet shown: a storm costs one picture for all that comes together. */
const TOGETHER = 100;
let waiting: Summary[] = [];
let follower: Follower | null = null;
let pending: ReturnType<typeof setTimeout> | null = null;

function stopFollowing(): void {
  follower?.stop();
  follower = null;
  // What came and is not shown yet is in the answer that the next stream goes on from.
  waiting = [];
  link.value = "off";
}

function startFollowing(cursor: string): void {
  stopFollowing();
  const { filters } = view.peek();
  if (!isLive(view.peek()) || overview.peek()?.mode !== "daemon" || hidden.peek()) return;
  follower = followInTurn(cursor, (after) => data.followUrl(after, filters) ?? "", {
    entry: arrived,
    reload: () => {
      link.value = "connecting";
      reload();
    },
    link: (state) => {
      const known = loaded.peek();
      // Until now it was covered by the stream; what comes now is not, until the stream is back.
      if (state === "lost" && link.peek() !== "lost" && known) loaded.value = { ...known, covers: { ...known.covers, to: now.peek() } };
      link.value = state;
    },
  });
}

/** Follows one object, whatever the filters are. */
export function followObject(id: string, after: string, heard: Heard): Follower | null {
  if (data.embedded || overview.peek()?.mode !== "daemon") return null;
  const { resource, namespace, name } = splitId(id);
  const filters = { ...NO_FILTERS, what: [`${resource}/${name}`], namespace: namespace === "" ? [] : [namespace], quiet: true };
  return followInTurn(after, (at) => data.followUrl(at, filters) ?? "", heard);
}

function arrived(entry: Summary): void {
  waiting.push(entry);
  if (waiting.length === 1) setTimeout(take, TOGETHER);
}

/** The senders of changes that came over the stream, by the entry of the change, the newest last. */
const senders = signal<ReadonlyMap<number, Actor>>(new Map());
const SENDERS_KEPT = 5000;

/** Who sent a change: it is known some time after the change, which may be shown already. */
export function senderOf(entry: Summary): Actor | undefined {
  return entry.actor ?? senders.value.get(entry.seq);
}

function learn(came: readonly Summary[]): void {
  const known = new Map(senders.peek());
  for (const { of, actor } of came) if (of !== undefined && actor) known.set(of, actor);
  if (known.size === senders.peek().size) return;
  senders.value = new Map([...known].slice(-SENDERS_KEPT));
}

function take(): void {
  const came = waiting;
  waiting = [];
  if (came.length === 0) return;
  learn(came);
  const rows = came.filter((entry) => isRow(entry, view.peek().filters)).length;
  const before = loaded.peek();
  let lanes = before?.answer.lanes ?? [];
  let missing = false;
  let until = before?.covers.to ?? 0;
  for (const entry of came) {
    const next = append(lanes, entry);
    if (next === null) missing = true;
    else lanes = next;
    until = Math.max(until, parse(entry.time));
  }
  batch(() => {
    changes.value += rows;
    bump(came);
    if (before && lanes !== before.answer.lanes) loaded.value = asLoaded({ ...before.answer, lanes, until: rfc3339(until) }, before);
  });
  if (missing && before) loadSoon();
}

/** How long the last load of lanes took. */
let took = 0;

/** One load for a burst of new objects. One that is under way comes to its end first: on a busy cluster nothing would ever come. */
function loadSoon(): void {
  if (pending !== null) return;
  pending = setTimeout(() => {
    pending = null;
    if (loading.peek()) loadSoon();
    else reload();
  }, Math.max(700, 3 * took));
}

/** The histogram takes new entries, too, until it is loaded the next time. */
function bump(came: readonly Summary[]): void {
  const known = histogram.peek();
  if (!known) return;
  const buckets = known.buckets.slice();
  const quiet = known.quiet.slice();
  for (const entry of came) {
    const index = Math.min(known.buckets.length - 1, Math.floor(((parse(entry.time) - parse(known.since)) * 1000) / known.width));
    const type = ["ADDED", "MODIFIED", "DELETED", "GAP"].indexOf(entry.type);
    const bucket = buckets[index];
    if (entry.quiet) quiet[index] = (quiet[index] ?? 0) + 1;
    else if (bucket && type >= 0) buckets[index] = bucket.map((number, at) => (at === type ? number + 1 : number)) as [number, number, number, number];
  }
  histogram.value = { ...known, buckets, quiet, total: known.total + came.length };
}

// ---- small state that is nobody else's business ------------------------------------------------------------------------

/** Where the keyboard is in the lanes. */
export const cursor = signal<{ lane: string; seq: number | null } | null>(null);
/** The next mark that is chosen is the other one of a comparison. */
export const picking = signal(false);
/** What a screen reader is to say. */
export const said = signal("");
export const helpOpen = signal(false);
/** Nobody sees the page. A browser gives one place a handful of connections, and such a page has no use for one. */
export const hidden = signal(document.hidden);

function matches(query: string): Signal<boolean> {
  const asked = matchMedia(query);
  const found = signal(asked.matches);
  asked.addEventListener("change", () => (found.value = asked.matches));
  return found;
}

/** Where the panel covers the lanes, and where it covers all: as the style sheet has it. */
export const narrow = matches("(max-width: 900px)");
export const phone = matches("(max-width: 640px)");

export type Theme = "auto" | "light" | "dark";

function remembered(): Theme {
  try {
    const kept = localStorage.getItem("decklog-theme");
    return kept === "light" || kept === "dark" ? kept : "auto";
  } catch {
    return "auto";
  }
}

export const theme = signal<Theme>(remembered());
const systemDark = matchMedia("(prefers-color-scheme: dark)");
export const dark = signal(false);

export function choose(entry: number, extend: boolean): void {
  const known = view.peek();
  if ((extend || picking.peek()) && !data.embedded && known.entry !== null && known.entry !== entry) go({ against: entry });
  else go({ entry, against: null });
  picking.value = false;
}

export function closeEntry(): void {
  picking.value = false;
  if (view.peek().entry !== null) go({ entry: null, against: null });
}

/** What a view without a range shows: the last two hours where something happened in them, else those up to the last entry. */
function defaultRange(known: Overview): Partial<View> {
  if (known.mode === "file" || !known.head || !known.oldest) return { since: ALL };
  const head = parse(known.head.time);
  const at = parse(known.now);
  const hours = 2 * 3_600_000;
  if (parse(known.oldest.time) > at - hours) return { since: ALL };
  if (head > at - hours) return { since: "2h" };
  return { since: brief(Math.max(parse(known.oldest.time), head - hours)), until: brief(head + 60_000) };
}

export function start(): void {
  effect(() => {
    dark.value = theme.value === "dark" || (theme.value === "auto" && systemDark.matches);
    document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
    try {
      localStorage.setItem("decklog-theme", theme.value);
    } catch {
      // A file or a browser without storage: the choice lasts as long as the page.
    }
  });
  systemDark.addEventListener("change", () => (dark.value = theme.peek() === "dark" || (theme.peek() === "auto" && systemDark.matches)));
  effect(() => {
    document.documentElement.dataset["theme"] = dark.value ? "dark" : "light";
  });
  setInterval(() => (clock.value = Date.now()), 1000);
  effect(() => {
    if (lanesKey.value !== "") void loadLanes();
    else stopFollowing();
  });
  effect(() => {
    if (histogramKey.value !== "") void loadHistogram();
  });
  // The choice goes into the address, so that it is what is shared.
  effect(() => {
    const known = overview.value;
    const { page, since, until } = view.value;
    if (known && since === "" && until === "" && ["timeline", "log", "churn"].includes(page)) go(defaultRange(known), false);
  });
  void loadOverview();
  if (!data.embedded) {
    document.addEventListener("visibilitychange", () => {
      hidden.value = document.hidden;
      if (document.hidden) stopFollowing();
      else reload();
    });
    setInterval(() => {
      if (overviewFailure.peek() && !overview.peek()) void loadOverview();
    }, 3000);
    setInterval(() => {
      if (hidden.peek()) return;
      void loadOverview();
      if (!isLive(view.peek())) return;
      if (histogramKey.peek() !== "") void loadHistogram();
      // What has moved out of a window that follows is dropped now and then.
      const known = loaded.peek();
      const window = range.peek();
      const marks = known?.answer.lanes.reduce((sum, lane) => sum + lane.marks.length, 0) ?? 0;
      if (known && lanesKey.peek() !== "" && (known.covers.from < window.from - (window.to - window.from) || marks > 2 * MARKS)) void loadLanes();
    }, 15_000);
  }
}

/** Whether a time is read by the page as the API reads it. */
export function isMoment(text: string): boolean {
  return !Number.isNaN(moment(text, now.peek()));
}
