// A log to develop and test the page with: made up, the same in every run but for the moment that it ends at. It has what is hard
// to draw: gaps, incarnations, a storm of 10,000 changes, quiet writers, fights, and names and values that attack whoever shows them.

export const HOSTILE = {
  markup: `<img src=x onerror="globalThis.canary='img'"><script>globalThis.canary='script'</script>`,
  attribute: `"onmouseover="globalThis.canary='attribute'" x='`,
  bidi: "safe\u202egnp.exe\u2066\u200b",
  nul: "before\u0000after\u001b[31m\u0007",
  url: "javascript:globalThis.canary='url'",
  template: "${globalThis.canary='template'}{{constructor.constructor('globalThis.canary=1')()}}",
  lone: "\ud800 half",
  long: "A".repeat(1024 * 1024),
};

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

const KINDS = {
  Deployment: "deployments.apps", ReplicaSet: "replicasets.apps", Pod: "pods", ConfigMap: "configmaps", Secret: "secrets", Node: "nodes",
  HorizontalPodAutoscaler: "horizontalpodautoscalers.autoscaling",
};
const GROUPS = { Deployment: "apps/v1", ReplicaSet: "apps/v1", HorizontalPodAutoscaler: "autoscaling/v2" };
export const SHORT = {
  Deployment: "deploy", ReplicaSet: "rs", Pod: "pod", ConfigMap: "cm", Secret: "secret", Node: "node", HorizontalPodAutoscaler: "hpa",
};

export function laneId(object) {
  return `${object.resource}/${object.namespace}/${object.name}`;
}

/** Makes the log. `big`: also 10,000 changes within the last hour. */
export function makeLog({ now, big = false }) {
  const rand = random(20261120);
  const events = [];
  const uid = () => Array.from({ length: 4 }, () => Math.floor(rand() * 0x10000).toString(16).padStart(4, "0")).join("-");
  const state = new Map();

  const push = (time, type, kind, namespace, name, change = {}) => {
    events.push({ time, type, kind, namespace, name, ...change, order: events.length });
  };

  const life = (kind, namespace, name, { from, how = "watched", owner = null, spec = {}, data, to = null, toHow = "watched", by = "kubectl-create" }) => {
    push(from, "ADDED", kind, namespace, name, { evidence: how, owner, set: { ...(data ? { data } : { spec }), metadata: { labels: { app: name.split("-")[0] } } }, managers: how === "listed" ? [] : [by] });
    if (to !== null) push(to, "DELETED", kind, namespace, name, { evidence: toHow, managers: [] });
  };
  const edit = (time, kind, namespace, name, path, value, manager, more = {}) => {
    push(time, "MODIFIED", kind, namespace, name, { path, value, managers: manager ? [manager] : [], ...more });
  };

  const start = now - 24 * HOUR;
  const at = (minutes) => now - minutes * MINUTE;

  // Listed when the log began.
  for (const [namespace, name, replicas] of [["shop", "web", 3], ["shop", "search", 2], ["pay", "ledger", 2]]) {
    life("Deployment", namespace, name, { from: start + SECOND, how: "listed", spec: { replicas, template: { spec: { containers: [{ name, image: `registry.example/${namespace}/${name}:1.5.0`, resources: { limits: { memory: "256Mi" } } }] } } }, ...(name === "search" ? { to: at(200) } : {}) });
    const rs = `${name}-6f5d9c8b7`;
    life("ReplicaSet", namespace, rs, { from: start + 2 * SECOND, how: "listed", owner: ["Deployment", namespace, name], spec: { replicas }, ...(name === "search" ? { to: at(199.9) } : {}) });
    for (let index = 0; index < replicas; index += 1) {
      const gone = name === "web" ? at(33 - index) : name === "search" ? at(199.5) : null;
      life("Pod", namespace, `${rs}-${"bcdfg"[index]}x${index}z`, { from: start + 3 * SECOND + index, how: "listed", owner: ["ReplicaSet", namespace, rs], spec: { nodeName: `n${index + 1}` }, to: gone });
    }
  }
  for (let index = 1; index <= 3; index += 1) {
    life("Node", "", `n${index}`, { from: start + 4 * SECOND, how: "listed", spec: { podCIDR: `10.0.${index}.0/24` } });
    for (let minute = 1430; minute > 2; minute -= 5) edit(at(minute - index), "Node", "", `n${index}`, "/status/heartbeat", `beat ${minute}`, "kubelet", { quiet: true, areas: ["status"] });
  }
  life("ConfigMap", "shop", "settings", { from: start + 5 * SECOND, how: "listed", data: { "app.conf": "listen 8080\nworkers 4\nlog info\ntimeout 30\n" } });
  life("ConfigMap", "shop", "feature-flags", { from: at(900), data: { beta: "off" }, by: "flag-operator" });
  life("ConfigMap", "pay", "rates", { from: start + 5 * SECOND, how: "listed", data: { eur: "1.08" }, to: at(20) });
  life("Secret", "shop", "db", { from: start + 6 * SECOND, how: "listed", data: { password: "hmac:93d0a1f47be258c693d0a1f47be258c6" } });
  for (let minute = 890; minute > 1; minute -= 7) edit(at(minute), "ConfigMap", "shop", "feature-flags", "/metadata/annotations/flags.example~1last-seen", `t${minute}`, "flag-operator", { quiet: true, areas: ["metadata"] });
  edit(at(95), "ConfigMap", "shop", "settings", "/data/app.conf", "listen 8080\nworkers 4\nlog debug\ntimeout 30\n", "kubectl-edit");
  edit(at(41), "ConfigMap", "shop", "settings", "/data/app.conf", "listen 8080\nworkers 8\nlog info\ntimeout 30\n", "kubectl-edit");
  edit(at(300), "Secret", "shop", "db", "/data/password", "hmac:258c693d0a1f47be258c693d0a1f47be", "vault-sync");

  // The second incarnation of search, and a fight over its replicas.
  life("Deployment", "shop", "search", { from: at(195), spec: { replicas: 2, template: { spec: { containers: [{ name: "search", image: "registry.example/shop/search:2.0.0" }] } } } });
  life("ReplicaSet", "shop", "search-58b7fd4c6", { from: at(194.9), owner: ["Deployment", "shop", "search"], spec: { replicas: 2 }, by: "kube-controller-manager" });
  for (let index = 0; index < 2; index += 1) life("Pod", "shop", `search-58b7fd4c6-q${index}w2x`, { from: at(194.8), owner: ["ReplicaSet", "shop", "search-58b7fd4c6"], spec: { nodeName: `n${index + 1}` }, by: "kube-controller-manager" });
  life("HorizontalPodAutoscaler", "shop", "search", { from: at(190), spec: { minReplicas: 2, maxReplicas: 9 }, by: "kubectl-create" });
  for (let turn = 0; turn < 12; turn += 1) {
    const scaler = turn % 2 === 0;
    edit(at(180 - turn * 13), "Deployment", "shop", "search", "/spec/replicas", scaler ? 5 : 3, scaler ? "horizontal-pod-autoscaler" : "argocd-controller", { turns: turn });
    edit(at(180 - turn * 13 - 0.1), "Deployment", "shop", "search", "/status/replicas", scaler ? 5 : 3, "kube-controller-manager");
  }

  // Everything unknown for half an hour, five hours ago; Pods for twenty minutes.
  push(at(270), "GAP", "", "", "", { gap: { why: "expired", from: "8800", to: "9214", since: iso(at(300)) }, resource: "" });
  push(at(50), "GAP", "", "", "", { gap: { why: "expired", from: "12200", to: "12940", since: iso(at(70)) }, resource: "pods" });
  life("Pod", "shop", "web-6f5d9c8b7-late1", { from: at(55), how: "inferred", owner: ["ReplicaSet", "shop", "web-6f5d9c8b7"], spec: { nodeName: "n3" }, to: at(30) });
  edit(at(49.9), "Pod", "pay", "ledger-6f5d9c8b7-bx0z", "/status/phase", "Running again", "kubelet", { evidence: "inferred" });

  // The bad rollout.
  edit(at(35), "Deployment", "shop", "web", "/spec/template/spec/containers/0/image", "registry.example/shop/web:1.6.0-rc1", "kubectl-set", { actor: { user: "jane@example.com", agent: "kubectl/v1.33.1", addresses: ["10.0.0.7"], verb: "patch", certainty: "exact", audit_ids: ["6f0b5d4e"] }, rollout: true });
  life("ReplicaSet", "shop", "web-7c9b5d6f4", { from: at(34.95), owner: ["Deployment", "shop", "web"], spec: { replicas: 3 }, by: "kube-controller-manager" });
  edit(at(34.9), "Deployment", "shop", "web", "/status/updatedReplicas", 1, "kube-controller-manager");
  for (let index = 0; index < 3; index += 1) {
    const name = `web-7c9b5d6f4-k8s${index}t`;
    life("Pod", "shop", name, { from: at(34.8 - index), owner: ["ReplicaSet", "shop", "web-7c9b5d6f4"], spec: { nodeName: `n${index + 1}` }, by: "kube-controller-manager" });
    edit(at(34.5 - index), "Pod", "shop", name, "/status/conditions", "Ready: False", "kubelet");
    for (let restart = 1; restart < 9; restart += 1) edit(at(34 - index - restart * 3.1), "Pod", "shop", name, "/status/restartCount", restart, "kubelet");
    edit(at(33.2 - index), "ReplicaSet", "shop", "web-6f5d9c8b7", "/spec/replicas", 2 - index, "kube-controller-manager");
    edit(at(33.1 - index), "ReplicaSet", "shop", "web-6f5d9c8b7", "/status/replicas", 2 - index, "kube-controller-manager");
  }
  edit(at(31), "Deployment", "shop", "web", "/status/unavailableReplicas", 3, "kube-controller-manager");
  edit(at(12), "Deployment", "shop", "web", "/metadata/annotations/owner", "jane", "kubectl-annotate");

  // What attacks the reader.
  life("ConfigMap", "hostile", HOSTILE.markup, { from: at(80), data: HOSTILE, by: HOSTILE.markup });
  life("ConfigMap", "hostile", HOSTILE.bidi, { from: at(79), data: { "\u202ekey": HOSTILE.nul, lone: HOSTILE.lone }, by: HOSTILE.bidi });
  edit(at(78), "ConfigMap", "hostile", HOSTILE.markup, "/data/markup", `${HOSTILE.markup} again`, HOSTILE.attribute);
  edit(at(77), "ConfigMap", "hostile", HOSTILE.markup, "/data/long", "B".repeat(1024 * 1024), HOSTILE.template);

  if (big) {
    for (let app = 0; app < 40; app += 1) {
      const name = `app-${String(app).padStart(2, "0")}`;
      const namespace = `team-${app % 5}`;
      life("Deployment", namespace, name, { from: start + 7 * SECOND, how: "listed", spec: { replicas: 5, image: "1" } });
      const rs = `${name}-5d8f7`;
      life("ReplicaSet", namespace, rs, { from: start + 8 * SECOND, how: "listed", owner: ["Deployment", namespace, name], spec: { replicas: 5 } });
      for (let pod = 0; pod < 5; pod += 1) life("Pod", namespace, `${rs}-p${pod}`, { from: start + 9 * SECOND, how: "listed", owner: ["ReplicaSet", namespace, rs], spec: { nodeName: "n1" } });
      for (let change = 0; change < 250; change += 1) {
        const which = Math.floor(rand() * 7);
        const time = now - 2 * MINUTE - rand() * 58 * MINUTE;
        if (which === 0) edit(time, "Deployment", namespace, name, "/spec/image", String(change), "argocd-controller");
        else if (which === 1) edit(time, "ReplicaSet", namespace, rs, "/status/replicas", change, "kube-controller-manager");
        else edit(time, "Pod", namespace, `${rs}-p${which - 2}`, rand() < 0.2 ? "/metadata/annotations/a" : "/status/phase", String(change), "kubelet");
      }
    }
  }

  events.sort((a, b) => a.time - b.time || a.order - b.order);
  const log = { entries: [], bySeq: new Map(), state, epoch: "3f9a61c2", now };
  for (const event of events) append(log, event, uid);
  log.uid = uid;
  return log;
}

function iso(time) {
  return new Date(time).toISOString().replace("Z", "000Z");
}

/** Adds an event to the log, as an entry with its object. */
export function append(log, event, uid = log.uid) {
  const seq = log.entries.length + 1;
  const resource = event.resource ?? KINDS[event.kind] ?? `${event.kind.toLowerCase()}s`;
  const key = `${event.kind} ${event.namespace} ${event.name}`;
  const before = log.state.get(key) ?? null;
  let object = null;
  let areas = [];
  if (event.type === "ADDED") {
    object = {
      apiVersion: GROUPS[event.kind] ?? "v1", kind: event.kind,
      metadata: { name: event.name, ...(event.namespace ? { namespace: event.namespace } : {}), uid: uid(), resourceVersion: String(7000 + seq), creationTimestamp: iso(event.time), ...(event.set?.metadata ?? {}) },
      ...(event.set?.spec ? { spec: event.set.spec } : {}), ...(event.set?.data ? { data: event.set.data } : {}), ...(event.set?.data ? {} : { status: { phase: "Running" } }),
    };
    log.state.set(key, { object, seq, owner: event.owner ?? null });
  } else if (event.type === "MODIFIED") {
    if (!before) throw new Error(`${key} is not there`);
    object = structuredClone(before.object);
    const steps = event.path.slice(1).split("/").map((step) => step.replace(/~1/g, "/").replace(/~0/g, "~"));
    let place = object;
    for (const step of steps.slice(0, -1)) place = place[step] ??= {};
    place[steps[steps.length - 1]] = event.value;
    object.metadata.resourceVersion = String(7000 + seq);
    areas = event.areas ?? ["managedFields", steps[0]].sort();
    log.state.set(key, { ...before, object, seq });
  } else if (event.type === "DELETED") {
    object = before?.object ?? null;
    log.state.delete(key);
  }
  const owner = event.type === "ADDED" ? (event.owner ?? null) : (before?.owner ?? null);
  const entry = {
    seq, time: event.time, type: event.type, evidence: event.type === "GAP" ? "" : (event.evidence ?? "watched"), kind: event.kind, resource, namespace: event.namespace,
    name: event.name, uid: object?.metadata.uid ?? "", areas, managers: event.managers ?? [], quiet: event.quiet ?? false, object, before: before?.object ?? null,
    previous: before?.seq ?? null, owner: owner ? laneId({ resource: KINDS[owner[0]], namespace: owner[1], name: owner[2] }) : null, gap: event.gap, actor: event.actor,
    rollout: event.rollout ?? false,
  };
  log.entries.push(entry);
  log.bySeq.set(seq, entry);
  return entry;
}

// ---- words -------------------------------------------------------------------------------------------------------------

export function time(milliseconds) {
  return iso(milliseconds);
}

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  return /^[A-Za-z0-9][A-Za-z0-9 ./:_-]*$/.test(value) && !/^\d+$/.test(value) ? value : JSON.stringify(value);
}

/** YAML, as far as these objects need it. */
export function yaml(value, indent = "") {
  if (Array.isArray(value)) return value.map((one) => `${indent}- ${yaml(one, `${indent}  `).trimStart()}`).join("");
  if (value !== null && typeof value === "object") {
    return Object.entries(value)
      .map(([key, inner]) => {
        const name = scalar(key);
        if (typeof inner === "string" && inner.includes("\n")) return `${indent}${name}: |\n${inner.trimEnd().split("\n").map((line) => `${indent}  ${line}\n`).join("")}`;
        if (inner !== null && typeof inner === "object" && Object.keys(inner).length > 0) return `${indent}${name}:\n${yaml(inner, `${indent}${Array.isArray(inner) ? "" : "  "}`)}`;
        return `${indent}${name}: ${scalar(inner)}\n`;
      })
      .join("");
  }
  return `${indent}${scalar(value)}\n`;
}

export function shown(object) {
  if (!object) return "";
  const { managedFields, resourceVersion, ...metadata } = object.metadata;
  void managedFields;
  void resourceVersion;
  return yaml({ ...object, metadata });
}
