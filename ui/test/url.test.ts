import assert from "node:assert/strict";
import { test } from "node:test";
import { filterKeys, fromHash, rangeOf, splitId, START, toHash, type View } from "../src/url.ts";

const FULL: View = {
  page: "object", since: "2026-11-25T01:00:00Z", until: "2026-11-25T02:00:00.5Z", over: "7d",
  filters: { what: ["deploy/web", "pods/web-*"], namespace: ["shop", "pay"], type: ["ADDED", "GAP"], area: ["spec"], by: ["kubectl*", "flux"], where: 'kind == "Pod" && name != "a+b&c=d#e%"', quiet: true },
  entry: 12, against: 7, changed: true, object: 'configmaps/hostile/<img src=x onerror="x">\u202e', at: "10", from: "1h", order: "names", folded: ["deployments.apps/shop/web", "a/b/c&d"], zone: "local",
};

test("what is written is read", () => {
  assert.deepEqual(fromHash(toHash(FULL)), FULL);
  assert.deepEqual(fromHash(toHash(START)), START);
  assert.equal(toHash(START), "");
});

test("the address is fit for a chat", () => {
  assert.equal(toHash({ ...START, since: "2h", entry: 8, filters: { ...START.filters, what: ["deploy/web"] } }), "#since=2h&what=deploy/web&entry=8");
  assert.match(toHash(FULL), /^#[\x21-\x7e]+$/);
});

test("what is unknown or wrong is left out", () => {
  const view = fromHash("#page=nowhere&entry=x&against=-1&over=lots&zone=mars&new=1&since=2h");
  assert.deepEqual(view, { ...START, since: "2h" });
});

test("filters are those of the API", () => {
  assert.deepEqual(filterKeys(FULL.filters), [
    ["what", "deploy/web"], ["what", "pods/web-*"], ["namespace", "shop"], ["namespace", "pay"], ["type", "ADDED,GAP"], ["area", "spec"],
    ["by", "kubectl*,flux"],
    ["where", 'kind == "Pod" && name != "a+b&c=d#e%"'], ["quiet", "1"],
  ]);
});

test("a range is two moments, or what is wrong with it", () => {
  assert.deepEqual(rangeOf({ since: "1m", until: "" }, 0, 100_000), { from: 40_000, to: 100_000 });
  assert.deepEqual(rangeOf({ since: "", until: "" }, 5, 100_000), { from: 5, to: 100_000 });
  assert.match(String(rangeOf({ since: "soon", until: "" }, 0, 1)), /since: soon is no time/);
  assert.match(String(rangeOf({ since: "1m", until: "2m" }, 0, 1e6)), /later than since/);
});

test("only the first two slashes of an id count", () => {
  assert.deepEqual(splitId("nodes//n1"), { resource: "nodes", namespace: "", name: "n1" });
  assert.deepEqual(splitId("x.y/ns/a/b/c"), { resource: "x.y", namespace: "ns", name: "a/b/c" });
});
