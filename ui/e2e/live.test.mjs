// A daemon at work, over a cluster that this changes. The test of the binary starts both.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { appendFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { api, browser, cluster, drawn, given, target, watched } from "./page.mjs";

const skip = given !== null && cluster !== null ? false : "needs a daemon, and the API server that it watches";

let chrome;
let server;
before(async () => {
  if (skip) return;
  chrome = await browser();
  server = await target();
});
after(async () => {
  await chrome?.close();
});

/** A way to the daemon that can be cut. */
async function way(to) {
  const { hostname, port } = new URL(to);
  const open = new Set();
  let cut = false;
  const proxy = createServer((near) => {
    if (cut) return near.destroy();
    const far = connect(Number(port), hostname);
    for (const [one, other] of [[near, far], [far, near]]) {
      open.add(one);
      one.on("error", () => {}).on("close", () => (open.delete(one), other.destroy()));
      one.pipe(other);
    }
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const cutting = (is) => {
    cut = is;
    if (is) for (const one of open) one.destroy();
  };
  return { url: `http://127.0.0.1:${proxy.address().port}/`, cutting, close: () => (cutting(true), proxy.close()) };
}

async function change(spec) {
  const response = await fetch(`${cluster}/apis/apps/v1/namespaces/shop/deployments/web`, {
    method: "PATCH", headers: { "content-type": "application/merge-patch+json", authorization: `Bearer ${process.env.DECKLOG_UI_CLUSTER_TOKEN}` }, body: JSON.stringify({ spec }),
  });
  const text = await response.text();
  assert.ok(response.ok, `${response.status} ${text}`);
  return JSON.parse(text);
}

/** The file that the daemon reads as the API server's audit log. */
const audit = process.env.DECKLOG_UI_AUDIT_LOG;

/** Writes who replaced a version by another, and when, into the audit log: after some seconds nothing else can have made it. */
function sent(old, { metadata }, username, now) {
  const { name, namespace, uid, resourceVersion } = metadata;
  const event = {
    kind: "Event", apiVersion: "audit.k8s.io/v1", level: "RequestResponse", auditID: `id-${resourceVersion}`, stage: "ResponseComplete", verb: "update",
    requestURI: `/apis/apps/v1/namespaces/${namespace}/deployments/${name}`, user: { username }, sourceIPs: ["10.0.0.7"], userAgent: "kubectl/v1.36.0 (linux/amd64)",
    objectRef: { resource: "deployments", namespace, name, uid, resourceVersion: old.metadata.resourceVersion, apiGroup: "apps", apiVersion: "v1" }, responseStatus: { metadata: {}, code: 200 },
    responseObject: { metadata: { name, namespace, uid, resourceVersion } }, requestReceivedTimestamp: now, stageTimestamp: now,
  };
  appendFileSync(audit, `${JSON.stringify(event)}\n`);
}

test("who sent a change is shown when the audit log says it", { skip: skip || (audit ? false : "needs the audit log") }, async () => {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
  const { page, clean } = await watched(context, { origin: server.url });
  const changes = async () => (await api(server.url, "entries?what=deploy/web&namespace=shop&type=MODIFIED&limit=100")).entries.length;
  const known = await changes();
  const old = await change({ replicas: 7 });
  const time = new Date().toISOString();
  const made = await change({ replicas: 8 });
  while ((await changes()) < known + 2) await new Promise((resolve) => setTimeout(resolve, 20));
  await page.goto(`${server.url}#page=log&since=1h&what=deploy/web&namespace=shop`);
  await page.locator(".live-live").waitFor();
  const rows = page.locator("table.entries tbody tr");
  const newest = rows.first();
  await newest.locator("button.seq").click();
  await page.locator(".panel [data-entry]").waitFor();
  const [shown, said] = [await rows.count(), "by alice@example.com (kubectl/v1.36.0, 10.0.0.7, audit: exact)"];
  sent(old, made, "alice@example.com", time);
  await newest.locator(".sender", { hasText: said }).waitFor();
  await page.locator(".panel .sender", { hasText: said }).waitFor();
  assert.equal(await rows.count(), shown, "it has no row of its own");
  assert.equal(await page.locator(".fresh").count(), 0, "and is no new entry");
  // It stays after a load, and a filter finds it.
  await page.goto(`${server.url}#page=log&since=1h&what=deploy/web&namespace=shop&by=alice@example.com`);
  await page.reload();
  await page.locator("table.entries tbody tr .sender", { hasText: said }).waitFor();
  assert.equal(await rows.count(), 1);
  await clean();
  await context.close();
});

test("what happens is shown, also what happened during a cut, and once", { skip }, async (t) => {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
  const through = await way(server.url);
  t.after(() => through.close());
  const { page, clean, asked } = await watched(context, { origin: through.url });
  await page.goto(`${through.url}#since=1h&what=deploy/web&namespace=shop`);
  await drawn(page);
  await page.locator(".live-live").waitFor();
  const marks = () => page.evaluate(() => globalThis.decklog.lanes().find((lane) => lane.id === "deployments.apps/shop/web").marks);
  const reach = (number) =>
    page.waitForFunction((wanted) => globalThis.decklog.lanes().find((lane) => lane.id === "deployments.apps/shop/web").marks >= wanted, number);
  const start = await marks();
  await change({ replicas: 2 });
  await reach(start + 1);
  const loads = () => asked.filter((one) => one.includes("/api/v1/lanes")).length;
  const loaded = loads();
  through.cutting(true);
  await page.locator(".live-lost").waitFor();
  for (const replicas of [3, 4, 5]) await change({ replicas });
  through.cutting(false);
  await reach(start + 4);
  await change({ replicas: 6 });
  await reach(start + 5);
  assert.equal(await marks(), start + 5);
  assert.equal(loads(), loaded, "the stream goes on after the last entry, and nothing is loaded again");
  const { lanes } = await api(server.url, "lanes?what=deploy/web&namespace=shop");
  assert.equal(lanes[0].marks.length, start + 5);
  await clean();
  await context.close();
});

test("what a source does not watch any more is hatched up to now", { skip }, async () => {
  const state = async () => (await api(server.url, "overview")).sources.find((one) => one.resource === "pods").state;
  const deadline = Date.now() + 60_000;
  while ((await state()) === "watching") {
    assert.ok(Date.now() < deadline, "the source of Pods is refused");
    // The daemon tells nobody of this: it is asked again.
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
  const { page, clean } = await watched(context, { origin: server.url });
  await page.goto(`${server.url}#since=1h&what=pod/web-x&namespace=shop`);
  await drawn(page);
  await page.waitForFunction(() => {
    const [box, ranges] = [document.getElementById("lanes").getBoundingClientRect(), globalThis.decklog.hatched("pods/shop/web-x")];
    return ranges.some((one) => /degraded|waiting/.test(one.why) && one.end > box.right - 40);
  });
  await clean();
  await context.close();
});
