// What decklog answers below `/api/v1`, over the made-up log of log.mjs.

import { laneId, SHORT, shown, time } from "./log.mjs";

export class Wrong extends Error {
  constructor(message, key, status = 400) {
    super(message);
    this.key = key;
    this.status = status;
  }
}

const UNITS = { s: 1e3, m: 6e4, h: 36e5, d: 864e5, w: 6048e5 };

function moment(text, now, key) {
  if (/^(\d+[smhdw])+$/.test(text)) return now - [...text.matchAll(/(\d+)([smhdw])/g)].reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit], 0);
  const at = Date.parse(text);
  if (!Number.isNaN(at) && /T.*(Z|[+-]\d\d:\d\d)$/.test(text)) {
    const fraction = /\.\d{3}(\d{1,3})/.exec(text);
    return at + (fraction ? Number(fraction[1].padEnd(3, "0")) / 1000 : 0);
  }
  throw new Wrong(`--${key}: "${text}" is no time: write a duration such as 2h, or a time such as 2026-11-20T10:30:00Z`, key);
}

function glob(pattern, name) {
  return new RegExp(`^${pattern.replace(/[.+^${}()|[\]\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".")}$`, "su").test(name);
}

/** As much of CEL as the tests of the page need. */
function cel(text) {
  const compared = /^(type|kind|namespace|name|evidence) == "([^"]*)"$/.exec(text);
  if (compared) return (entry) => entry[compared[1]] === compared[2];
  const within = /^"([a-zA-Z]+)" in change\.areas$/.exec(text);
  if (within) return (entry) => entry.areas.includes(within[1]);
  const column = text.search(/[^\w\s".=&|!()]/) + 1 || text.length;
  throw new Wrong(`--where: no expression ends here\n  ${text}\n  ${" ".repeat(column - 1)}^ column ${column}\nSee decklog's page on filters`, "where");
}

export function filters(query) {
  const what = query.getAll("what").map((one) => {
    const slash = one.indexOf("/");
    const word = (slash < 0 ? one : one.slice(0, slash)).toLowerCase();
    const kind = Object.entries(SHORT).find(([name, short]) => [name.toLowerCase(), `${name.toLowerCase()}s`, short].includes(word) || word.startsWith(`${name.toLowerCase()}s.`));
    if (!kind) throw new Wrong(`"${one}" is no kind that is watched: deployments.apps, replicasets.apps, pods, configmaps, secrets and nodes are`, "what");
    return { kind: kind[0], name: slash < 0 ? "*" : one.slice(slash + 1) };
  });
  const namespaces = query.getAll("namespace").flatMap((one) => one.split(","));
  const list = (key) => (query.get(key) ?? "").split(",").filter(Boolean);
  const types = list("type");
  const areas = list("area");
  const by = list("by").map((name) => new RegExp(`^${name.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`));
  for (const type of types) if (!["ADDED", "MODIFIED", "DELETED", "GAP"].includes(type)) throw new Wrong(`--type: "${type}" is no type: ADDED, MODIFIED, DELETED, GAP`, "type");
  const where = query.get("where") ? cel(query.get("where")) : null;
  const object = (one) => (what.length === 0 || what.some((wanted) => wanted.kind === one.kind && glob(wanted.name, one.name))) && (namespaces.length === 0 || namespaces.some((namespace) => glob(namespace, one.namespace)));
  return {
    quiet: query.get("quiet") === "1",
    narrowed: types.length > 0 || areas.length > 0 || by.length > 0 || where !== null,
    object,
    entry: (one) =>
      (one.type === "GAP" ? namespaces.length === 0 || one.namespace === "" : object(one)) && (types.length === 0 || types.includes(one.type)) &&
      (areas.length === 0 || areas.some((area) => one.areas.includes(area))) && (by.length === 0 || one.managers.some((name) => by.some((wanted) => wanted.test(name)))) && (where === null || where(one)),
  };
}

function gist(entry) {
  const by = entry.managers.map((manager) => `${manager} Update`).join(", ");
  if (entry.evidence === "listed") return "listed: it was there before the journal began to watch";
  return [by, entry.rollout ? "image …1.5.0 → …1.6.0-rc1" : ""].filter(Boolean).join("  ");
}

export function summary(entry) {
  const gap = entry.type === "GAP";
  const object = gap ? `${entry.resource || "everything"} ${entry.gap.why}: changes may be missing` : `${entry.namespace} ${SHORT[entry.kind] ?? entry.kind}/${entry.name}  ${gist(entry)}`;
  return {
    seq: entry.seq, time: time(entry.time), ...(gap ? {} : { happened: time(Math.floor(entry.time / 1000) * 1000) }), type: entry.type, evidence: entry.evidence,
    id: gap ? "" : laneId(entry), kind: entry.kind, resource: entry.resource, namespace: entry.namespace, name: entry.name, uid: entry.uid, areas: entry.areas,
    managers: entry.managers, ...unnamed(entry), quiet: entry.quiet, line: `${entry.seq} ${time(entry.time).slice(11, 19)} ${entry.type.padEnd(8)} ${object}`,
    ...(entry.gap ? { gap: entry.gap } : {}), ...(entry.actor ? { actor: entry.actor } : {}),
  };
}

export function lineDiff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  return [
    ...a.slice(Math.max(0, head - 3), head).map((line) => `  ${line}`), ...a.slice(head, a.length - tail).map((line) => `- ${line}`),
    ...b.slice(head, b.length - tail).map((line) => `+ ${line}`), ...a.slice(a.length - tail, a.length - tail + 2).map((line) => `  ${line}`),
  ].join("\n");
}

const YAML = 256 * 1024;

/** Why nobody is named: nobody deletes by managedFields. */
function unnamed(entry) {
  return entry.type === "DELETED" && entry.evidence === "watched" ? { unnamed: "deletion" } : {};
}

export class Api {
  constructor(log) {
    this.log = log;
  }

  now() {
    return Date.now();
  }

  cursor() {
    return `${this.log.epoch}:${this.log.entries.length}`;
  }

  range(query) {
    const first = this.log.entries[0]?.time ?? this.now();
    const from = query.get("since") ? moment(query.get("since"), this.now(), "since") : first;
    const to = query.get("until") ? moment(query.get("until"), this.now(), "until") : this.now();
    return { from, to };
  }

  gaps() {
    return this.log.entries.filter((entry) => entry.type === "GAP");
  }

  overview() {
    const { entries } = this.log;
    const first = entries[0];
    const last = entries[entries.length - 1];
    const kinds = new Map();
    const namespaces = new Set();
    for (const entry of entries) {
      if (entry.kind) kinds.set(entry.kind, { kind: entry.kind, resource: entry.resource, namespaced: entry.namespace !== "" });
      if (entry.namespace) namespaces.add(entry.namespace);
    }
    const good = time(this.now() - 800);
    const source = (resource, more = {}) => ({ name: resource, resource, namespace: "", state: "watching", says: "watching", detail: "", since: time(first.time), good_at: good, gaps: 0, objects: 12, ...more });
    return {
      v: 1, version: "0.1.0", cluster: { name: "prod-eu1", uid: "8b2e0244-5e4b-40f5-bf8c-59bb003553c1" }, epoch: this.log.epoch, cursor: this.cursor(),
      oldest: { seq: first.seq, time: time(first.time) }, head: { seq: last.seq, time: time(last.time) }, now: time(this.now()), end: time(this.now()), mode: "daemon", daemon: { running: true, since: null },
      sources: [
        source("deployments.apps"), source("replicasets.apps"), source("pods", { gaps: 2 }), source("configmaps"), source("nodes"),
        source("horizontalpodautoscalers.autoscaling"),
        source("secrets", { state: "degraded", says: "degraded", detail: "the API server answers 403: secrets is forbidden", good_at: time(this.log.now - 25 * 60_000) }),
      ],
      sinks: [
        { name: "audit", kind: "file", state: "running", says: "running", detail: "", cursor: last.seq, lag: 0, delivered_at: good },
        { name: "siem", kind: "http", state: "halted", says: "halted", detail: "collector.example refused entry 311: 413 Payload Too Large", cursor: 310, lag: last.seq - 310, delivered_at: time(this.log.now - 80 * 60_000) },
      ],
      alarms: [{ name: "sink-halted", text: "sink siem is halted: collector.example refused entry 311; see decklog sink, then decklog replay", since: time(this.log.now - 80 * 60_000) }],
      gaps: this.gaps().reverse().map((gap) => ({ seq: gap.seq, time: time(gap.time), since: gap.gap.since, why: gap.gap.why, resource: gap.resource, namespace: gap.namespace })),
      kinds: [...kinds.values()], namespaces: [...namespaces].sort(), size: 4_812_345,
    };
  }

  histogram(query) {
    const { from, to } = this.range(query);
    const passes = filters(query);
    const number = Math.min(1000, Number(query.get("buckets") ?? 200));
    const width = Math.max(1, Math.ceil(((to - from) * 1000) / number));
    const buckets = Array.from({ length: number }, () => [0, 0, 0, 0]);
    const quiet = new Array(number).fill(0);
    let total = 0;
    for (const entry of this.log.entries) {
      const index = Math.floor(((entry.time - from) * 1000) / width);
      if (index < 0 || index >= number || !passes.entry(entry)) continue;
      total += 1;
      if (entry.quiet && !passes.quiet) quiet[index] += 1;
      else buckets[index][["ADDED", "MODIFIED", "DELETED", "GAP"].indexOf(entry.type)] += 1;
    }
    return { since: time(from), until: time(to), width, buckets, quiet, total };
  }

  /** All lanes of a range, without a bound. */
  allLanes(from, to, passes) {
    const lanes = new Map();
    for (const entry of this.log.entries) {
      if (entry.type === "GAP" || !passes.object(entry)) continue;
      const id = laneId(entry);
      let lane = lanes.get(id);
      if (!lane) lanes.set(id, (lane = { id, kind: entry.kind, resource: entry.resource, namespace: entry.namespace, name: entry.name, owner: entry.owner, depth: 0, bars: [], marks: [], quiet: 0 }));
      if (entry.owner) lane.owner = entry.owner;
      if (entry.type === "ADDED") lane.bars.push({ uid: entry.uid, from: time(entry.time), from_how: entry.evidence, to: null, to_how: "open" });
      const bar = lane.bars[lane.bars.length - 1];
      if (entry.type === "DELETED" && bar) Object.assign(bar, { to: time(entry.time), to_how: entry.evidence });
      if (entry.time < from || entry.time > to || !passes.entry(entry)) continue;
      const last = lane.marks[lane.marks.length - 1];
      const mark = { seq: entry.seq, time: time(entry.time), type: entry.type, evidence: entry.evidence, areas: entry.areas, managers: entry.managers, ...unnamed(entry), quiet: 0 };
      if (entry.quiet && !passes.quiet) {
        lane.quiet += 1;
        if (last?.type === "QUIET") Object.assign(last, { seq: entry.seq, time: time(entry.time), quiet: last.quiet + 1 });
        else lane.marks.push({ ...mark, type: "QUIET", quiet: 1 });
      } else if (last?.type === "QUIET") lane.marks[lane.marks.length - 1] = { ...mark, quiet: last.quiet };
      else lane.marks.push(mark);
    }
    return [...lanes.values()].filter((lane) => {
      lane.bars = lane.bars.filter((bar) => Date.parse(bar.from) <= to && (bar.to === null || Date.parse(bar.to) >= from));
      return lane.marks.length > 0 || (lane.bars.length > 0 && !passes.narrowed);
    });
  }

  lanes(query) {
    const { from, to } = this.range(query);
    const passes = filters(query);
    const all = this.allLanes(from, to, passes);
    const byId = new Map(all.map((lane) => [lane.id, lane]));
    const children = new Map();
    for (const lane of all) {
      const owner = lane.owner !== null && byId.has(lane.owner) ? lane.owner : "";
      children.set(owner, [...(children.get(owner) ?? []), lane]);
    }
    const ordered = [];
    const walk = (id, depth) => {
      const mine = (children.get(id) ?? []).sort((a, b) => (depth > 0 ? 0 : a.namespace < b.namespace ? -1 : a.namespace > b.namespace ? 1 : 0) || (a.kind === "Deployment" ? -1 : 0) - (b.kind === "Deployment" ? -1 : 0));
      for (const lane of mine) {
        ordered.push({ ...lane, depth });
        walk(lane.id, depth + 1);
      }
    };
    walk("", 0);
    for (const lane of ordered) if (lane.marks.some((mark) => mark.type !== "QUIET" && mark.evidence !== "listed")) lane.role = "cause";
    const most = Number(query.get("lanes") ?? 500);
    let budget = Number(query.get("marks") ?? 10_000);
    let left = 0;
    for (const lane of ordered) {
      if (lane.marks.length > budget) {
        left += lane.marks.length - budget;
        lane.marks = lane.marks.slice(lane.marks.length - budget);
      }
      budget -= lane.marks.length;
    }
    const leftLanes = Math.max(0, ordered.length - most);
    return {
      since: time(from), until: time(to), cursor: this.cursor(), truncated: left + leftLanes > 0 ? { lanes: leftLanes, marks: left } : null, lanes: ordered.slice(0, most),
      unwatched: this.unwatched(from, to),
    };
  }

  entries(query) {
    const { from, to } = this.range(query);
    const passes = filters(query);
    const limit = Math.min(1000, Number(query.get("limit") ?? 200));
    const before = Number(query.get("before") ?? Infinity);
    const found = this.log.entries.filter((entry) => entry.time >= from && entry.time <= to && entry.seq < before && passes.entry(entry) && (passes.quiet || !entry.quiet)).reverse();
    return { entries: found.slice(0, limit).map(summary), more: found.length > limit };
  }

  find(seq) {
    const entry = this.log.bySeq.get(Number(seq));
    if (!entry) throw new Wrong(`there is no entry ${seq}: the log has 1 to ${this.log.entries.length}`, "seq", 404);
    return entry;
  }

  command(entry) {
    if (entry.type === "GAP") return null;
    const quote = (text) => (/^[\w./:-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
    return `decklog get ${quote(`${SHORT[entry.kind] ?? entry.kind}/${entry.name}`)}${entry.namespace ? ` -n ${entry.namespace}` : ""} --at ${entry.type === "DELETED" ? entry.previous : entry.seq} --clean | kubectl apply -f -`;
  }

  undo(entry) {
    if (entry.type === "GAP" || entry.evidence === "listed") return {};
    if (entry.type === "ADDED") return { undo: `kubectl delete ${entry.resource}/${entry.name}${entry.namespace ? ` -n ${entry.namespace}` : ""}` };
    return entry.previous ? { undo: this.command(this.find(entry.previous)) } : {};
  }

  entry(query) {
    const entry = this.find(query.get("seq"));
    const same = this.log.entries.filter((one) => one.type !== "GAP" && laneId(one) === laneId(entry));
    const at = same.indexOf(entry);
    const near = this.log.entries.filter((one) => one.type !== "GAP" && laneId(one) !== laneId(entry) && !one.quiet && one.namespace === entry.namespace);
    const text = shown(entry.object);
    return {
      summary: summary(entry),
      entry: { v: 1, seq: entry.seq, type: entry.type, ...(entry.type === "MODIFIED" ? { change: { areas: entry.areas, managers: entry.managers.map((manager) => ({ manager, operation: "Update", by: "moved" })) } } : {}) },
      ...(unnamed(entry).unnamed ? { unnamed: "nobody is named: managedFields do not record DELETE requests; the API server's audit log has who asked" } : {}),
      diff: entry.type === "MODIFIED" ? lineDiff(shown(entry.before), text) : "", real: !entry.quiet, previous: same[at - 1]?.seq ?? null, next: entry.type === "GAP" ? null : (same[at + 1]?.seq ?? null),
      neighbours: [...near.filter((one) => one.seq < entry.seq).slice(-5), ...near.filter((one) => one.seq > entry.seq).slice(0, 5)].map(summary),
      yaml: text.slice(0, YAML), yaml_cut: text.length > YAML, command: this.command(entry), ...this.undo(entry),
    };
  }

  diff(query) {
    const [from, to] = [this.find(query.get("from")), this.find(query.get("to"))];
    const same = laneId(from) === laneId(to);
    return {
      from: summary(from), to: summary(to), diff: lineDiff(shown(from.object), shown(to.object)), same_object: same,
      command: `decklog diff ${SHORT[from.kind]}/${from.name} -n ${from.namespace} --from ${from.seq} --to ${to.seq}`,
    };
  }

  object(query) {
    const id = laneId({ resource: query.get("resource"), namespace: query.get("namespace") ?? "", name: query.get("name") });
    const lane = this.allLanes(-Infinity, Infinity, filters(new URLSearchParams())).find((one) => one.id === id);
    if (!lane) throw new Wrong(`the log knows no ${query.get("resource")} ${query.get("name")}`, "name", 404);
    const mine = this.log.entries.filter((entry) => entry.type !== "GAP" && laneId(entry) === id);
    const at = query.get("at");
    const then = mine.filter((entry) => !at || (/^\d+$/.test(at) ? entry.seq <= Number(at) : entry.time <= moment(at, this.now(), "at"))).pop();
    const there = then && then.type !== "DELETED";
    const text = there ? shown(then.object) : "";
    const blame = [];
    const leaves = (value, path) => {
      if (value !== null && typeof value === "object") for (const [key, inner] of Object.entries(value)) leaves(inner, path ? `${path}.${key}` : key);
      else {
        const first = path.split(".")[0];
        const by = mine.filter((entry) => entry.seq <= then.seq && entry.areas.includes(first)).pop() ?? mine[0];
        blame.push({ path, value: String(value), manager: by.managers[0] ?? "", operation: "Update", seq: by.seq, time: time(by.time) });
      }
    };
    if (there) leaves(Object.fromEntries(Object.entries(then.object).filter(([key]) => !["apiVersion", "kind", "metadata"].includes(key))), "");
    return {
      lane, unwatched: this.unwatched(-8.64e15, 8.64e15).filter((gap) => gap.resource === null || gap.resource === lane.resource), entries: mine.slice(-500).reverse().map(summary), more: mine.length > 500, at: there ? then.seq : null, yaml: there ? text.slice(0, YAML) : null, yaml_cut: text.length > YAML,
      blame: blame.slice(0, 500), command: there ? this.command(then) : null,
    };
  }

  unwatched(from, to) {
    return this.gaps().filter((gap) => gap.time >= from && Date.parse(gap.gap.since) <= to).map((gap) => ({ resource: gap.resource || null, namespace: "", from: gap.gap.since, to: time(gap.time), why: gap.gap.why, seq: gap.seq })).concat([{ resource: "secrets", namespace: "", from: time(this.log.now - 25 * 60_000), to: time(this.now()), why: "degraded", seq: null }]);
  }

  /** Of what nobody knows at a moment. */
  unknown(then) {
    return this.unwatched(then, then).filter((gap) => Date.parse(gap.from) <= then && then <= Date.parse(gap.to));
  }

  state(query) {
    const at = query.get("at") ?? "0s";
    const passes = filters(query);
    const limit = /^\d+$/.test(at) ? this.find(at).time : moment(at, this.now(), "at");
    const there = new Map();
    let seq = 0;
    for (const entry of this.log.entries) {
      if (entry.time > limit) break;
      seq = entry.seq;
      if (entry.type === "GAP" || !passes.object(entry)) continue;
      if (entry.type === "DELETED") there.delete(laneId(entry));
      else there.set(laneId(entry), entry);
    }
    const all = [...there.values()].sort((a, b) => (laneId(a) < laneId(b) ? -1 : 1));
    const most = Number(query.get("limit") ?? 1000);
    return {
      at: time(limit), seq, truncated: Math.max(0, all.length - most), unknown: this.unknown(limit),
      objects: all.slice(0, most).map((entry) => ({ id: laneId(entry), kind: entry.kind, resource: entry.resource, namespace: entry.namespace, name: entry.name, uid: entry.uid, seq: entry.seq, since: time(entry.time), how: entry.evidence })),
    };
  }

  clusters() {
    return { clusters: [], this: null };
  }

  changes(query) {
    const [from, to] = [query.get("from") ?? "", query.get("to") ?? "0s"];
    const passes = filters(query);
    // After an entry, or after the last one that is not later than a time.
    const place = (text, key) => {
      const found = /^\d+$/.test(text) ? this.find(text) : null;
      const limit = found?.time ?? moment(text, this.now(), key);
      return { at: time(limit), unknown: this.unknown(limit), seq: found?.seq ?? this.log.entries.filter((entry) => entry.time <= limit).pop()?.seq ?? 0 };
    };
    const [upto, end] = [place(from, "from"), place(to, "to")];
    if (upto.seq > end.seq) throw new Wrong("from is after to; swap them", "from");
    const then = new Map();
    const now = new Map();
    const steps = new Map();
    for (const entry of this.log.entries) {
      if (entry.seq > end.seq) break;
      if (entry.type === "GAP" || !passes.object(entry)) continue;
      const id = laneId(entry);
      for (const map of entry.seq <= upto.seq ? [then, now] : [now]) {
        if (entry.type === "DELETED") map.delete(id);
        else map.set(id, entry);
      }
      if (entry.seq > upto.seq) steps.set(id, [...(steps.get(id) ?? []), entry]);
    }
    const objects = [];
    let gone = 0;
    for (const [id, mine] of [...steps].sort()) {
      const [before, after, newest] = [then.get(id), now.get(id), mine[mine.length - 1]];
      if (!before && !after) gone += 1;
      const real = mine.filter((entry) => !entry.quiet);
      if ((!before && !after) || (before && after && before.uid === after.uid && real.length === 0)) continue;
      const became = !before ? (mine[0].evidence === "listed" ? "first_seen" : "added") : !after ? "removed" : before.uid === after.uid ? "changed" : "replaced";
      objects.push({
        id, kind: newest.kind, resource: newest.resource, namespace: newest.namespace, name: newest.name, uid: newest.uid, became,
        areas: before && after ? [...new Set(real.flatMap((entry) => entry.areas))] : [], entries: mine.length, before: before?.seq ?? null, seq: newest.seq,
        time: time(newest.time), how: newest.evidence,
      });
    }
    const most = Number(query.get("limit") ?? 1000);
    return { from: upto, to: end, objects: objects.slice(0, most), came_and_went: gone, truncated: Math.max(0, objects.length - most), gaps: this.gaps().filter((gap) => gap.seq > upto.seq && gap.seq <= end.seq).length };
  }

  churn(query) {
    const { from, to } = this.range(query);
    const writers = new Map();
    for (const entry of this.log.entries) {
      if (entry.type !== "MODIFIED" || entry.time < from || entry.time > to) continue;
      const key = `${laneId(entry)} ${entry.managers[0]}`;
      const writer = writers.get(key) ?? { id: laneId(entry), kind: entry.kind, namespace: entry.namespace, name: entry.name, manager: entry.managers[0] ?? "", writes: 0, useless: 0, class: entry.quiet ? "time stamps alone" : "changed", text: "" };
      writer.writes += 1;
      if (entry.quiet) writer.useless += 1;
      writer.text = `${writer.writes} writes, ${writer.useless} no-op`;
      writers.set(key, writer);
    }
    const turns = this.log.entries.filter((entry) => entry.name === "search" && entry.areas.includes("spec") && entry.time >= from && entry.time <= to);
    return {
      since: time(from), until: time(to), writers: [...writers.values()].sort((a, b) => b.writes - a.writes).slice(0, 50),
      fights: turns.length > 3 ? [{ id: laneId(turns[0]), kind: "Deployment", namespace: "shop", name: "search", path: "spec.replicas", managers: ["argocd-controller", "horizontal-pod-autoscaler"], writes: turns.length + 1, turns: turns.length, last: turns[turns.length - 1].seq }] : [],
      truncated: writers.size > 50,
    };
  }
}

/** What `decklog timeline --html` puts into the one file. */
export function fileData(api, since = "") {
  const window = since ? { since } : {};
  const query = new URLSearchParams(window);
  const lanes = api.lanes(query);
  const overview = { ...api.overview(), mode: "file", now: lanes.until, end: lanes.until, asked: { objects: [], namespaces: [], types: [], areas: [], by: [], since: lanes.since, until: null, where: null, quiet: false } };
  overview.oldest &&= { ...overview.oldest, time: lanes.since };
  const answers = { overview, lanes, histogram: api.histogram(new URLSearchParams({ ...window, buckets: "240" })), writers: api.churn(query) };
  answers.entries = api.entries(new URLSearchParams({ ...window, limit: "2000" }));
  answers.state = api.state(new URLSearchParams());
  answers.changes = api.changes(new URLSearchParams({ from: lanes.since }));
  for (const lane of lanes.lanes) {
    answers[`object/${lane.id}`] = api.object(new URLSearchParams({ resource: lane.resource, namespace: lane.namespace, name: lane.name }));
    for (const mark of lane.marks) {
      const { neighbours, ...kept } = api.entry(new URLSearchParams({ seq: mark.seq }));
      void neighbours;
      answers[`entry/${mark.seq}`] = kept;
    }
  }
  for (const gap of answers.overview.gaps) answers[`entry/${gap.seq}`] = api.entry(new URLSearchParams({ seq: gap.seq }));
  return { answers, left_out: null };
}
