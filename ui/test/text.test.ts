import assert from "node:assert/strict";
import { test } from "node:test";
import type { Actor } from "../src/api.ts";
import { bytes, count, cut, fitToPaste, halves, ofCluster, pieces, plain, rewriteWords, senderWords, withoutArea } from "../src/text.ts";

test("what does not show is shown by its name", () => {
  for (const [hidden, name] of [
    ["\u202e", "\\u202e"], ["\u2066", "\\u2066"], ["\u200b", "\\u200b"], ["\u0000", "\\u0000"], ["\u001b", "\\u001b"], ["\u0085", "\\u0085"], ["\ufeff", "\\ufeff"],
    ["\u{e0041}", "\\u{e0041}"], ["\ud800", "\\ud800"], ["\r", "\\u000d"], ["\u2028", "\\u2028"], ["\u061c", "\\u061c"], ["\u00ad", "\\u00ad"],
  ] as const) {
    assert.deepEqual(pieces(`a${hidden}b`, true), [{ text: "a", escaped: false }, { text: name, escaped: true }, { text: "b", escaped: false }], name);
  }
});

test("what shows stays as it is, whatever the script", () => {
  for (const text of ["web-1.4.0", "שלום", "数据库", "👩‍💻".replace("\u200d", ""), "<script>alert(1)</script>", "naïve"]) {
    assert.deepEqual(pieces(text, true), [{ text, escaped: false }]);
  }
});

test("line feeds and tabs are named where there is one line", () => {
  assert.equal(pieces("a\n\tb", true).map((piece) => piece.text).join(""), "a\\n\\tb");
  assert.deepEqual(pieces("a\n\tb", false), [{ text: "a\n\tb", escaped: false }]);
});

test("a cut never leaves half of a pair", () => {
  assert.deepEqual(cut("ab\u{1f600}", 3), ["ab", 2]);
  assert.deepEqual(cut("abc", 3), ["abc", 0]);
  assert.equal(plain("x".repeat(1_000_000), 10), "xxxxxxxxxx…");
});

test("a command with something hidden is not copied", () => {
  assert.ok(fitToPaste("decklog get deploy/web -n shop --at 7 --clean | kubectl apply -f -"));
  for (const hidden of ["\n", "\r", "\u001b[31m", "\u202e"]) assert.ok(!fitToPaste(`decklog get x${hidden}rm`));
});

test("a name has its end by itself, whole characters in both halves", () => {
  for (const [name, head, tail] of [
    ["api-5rl7d-x2k4p", "api-5rl7", "d-x2k4p"], ["web", "we", "b"], ["db", "d", "b"], ["a", "a", ""], ["", "", ""], ["x\u{1f600}\u{1f600}", "x\u{1f600}", "\u{1f600}"], ["a\u{1f600}", "a", "\u{1f600}"],
  ] as const) {
    assert.deepEqual(halves(name), [head, tail], name);
  }
});

test("an area is said once", () => {
  for (const [text, areas, rest] of [
    ["spec  replicas 3 → 5", ["spec"], "replicas 3 → 5"], ["spec replicas 3 → 5", ["metadata", "spec"], "replicas 3 → 5"], ["data.value a → b", ["data"], "value a → b"], ["status.observedGeneration", ["status"], "observedGeneration"],
    ["spec", ["spec"], ""], ["spec spec.mode a → b", ["spec"], "mode a → b"], ["data data.data.x", ["data"], "data.x"], ["specials 1 → 2", ["spec"], "specials 1 → 2"], ["replicas 3 → 5", ["spec"], "replicas 3 → 5"], ["spec replicas", [], "spec replicas"],
  ] as const) {
    assert.equal(withoutArea(text, areas), rest, text);
  }
});

test("figures", () => {
  assert.equal(count(1234567), "1,234,567");
  assert.equal(count(12), "12");
  assert.equal(bytes(4_812_345), "4.6 MiB");
  assert.equal(bytes(12), "12 B");
});

test("a command of one of several clusters says which", () => {
  assert.equal(ofCluster("decklog get deploy/web --at 7", "/clusters/prod%2Deu1/"), "decklog --cluster prod-eu1 get deploy/web --at 7");
  assert.equal(ofCluster("decklog diff cm/a", "/clusters/a%3Bb/"), "decklog --cluster 'a;b' diff cm/a");
  assert.equal(ofCluster("decklog get deploy/web", "/"), "decklog get deploy/web");
});

test("a storage rewrite names its writer where the log does", () => {
  assert.equal(rewriteWords({ objects: 2301 }), "storage rewrite of 2,301 objects");
  assert.equal(rewriteWords({ objects: 10, by: "kubectl-replace" }), "storage rewrite of 10 objects by kubectl-replace");
});

test("who sent a change is said as log says it", () => {
  const sent = { user: "alice@example.com", verb: "patch", certainty: "field" };
  for (const [more, expected] of [
    [{}, "alice@example.com (audit: field)"],
    [{ agent: "kubectl/v1.36.0 (linux/amd64) kubernetes/1a2b3c4", addresses: ["10.0.0.7", "10.0.0.1"] }, "alice@example.com (kubectl/v1.36.0, 10.0.0.7 through 10.0.0.1, audit: field)"],
    [{ addresses: ["10.0.0.7", "10.0.0.7"] }, "alice@example.com (10.0.0.7, audit: field)"],
    [{ certainty: "doubtful" }, "alice@example.com (audit: doubtful, events of that time are missing)"],
    [{ impersonated_by: "ci", addresses: ["10.0.0.7"] }, "alice@example.com (impersonated by ci, 10.0.0.7, audit: field)"],
  ] as const) {
    assert.equal(senderWords({ ...sent, ...more } as Actor), expected);
  }
});
