// The page in a browser. Names and numbers are taken from the API, so that this runs against any decklog with an incident in its log.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { api, ask, browser, clickMark, cluster, drawn, focused, given, markPlace, rollout, settled, target, watched } from "./page.mjs";

let chrome;
let server;
before(async () => {
  chrome = await browser();
  server = await target();
  const { oldest, head } = await api(server.url, "overview");
  reach = Math.min(reach, (Date.parse(head.time) - Date.parse(oldest.time)) / 10);
});
after(async () => {
  await chrome?.close();
  await server?.stop();
});

async function open(hash = "", options = {}) {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const one = await watched(context, { origin: server.url });
  await one.page.goto(`${server.url}${hash}`);
  return { ...one, context };
}

const MINUTE = 60_000;
const between = (from, to) => `since=${new Date(from).toISOString()}&until=${new Date(to).toISOString()}`;
/** A window in which marks stand apart: a log may be of hours, or of two seconds. */
let reach = 30 * MINUTE;
const around = (time) => between(Date.parse(time) - reach, Date.parse(time) + reach);

test("an incident is solved by clicks alone", async () => {
  const { lane, mark, entry } = await rollout(server.url);
  const { page, clean, context } = await open("", { permissions: ["clipboard-read", "clipboard-write"] });
  await drawn(page);
  // The whole log, the legend to what changed a spec, the mark, its diff, and the command that undoes it.
  await page.getByRole("button", { name: "all", exact: true }).click();
  await page.getByRole("button", { name: "spec", exact: true }).click();
  await settled(page);
  await page.waitForFunction((id) => globalThis.decklog.lanes().some((one) => one.id === id), lane.id);
  // Marks stand close in the whole log: zoom to this one with the wheel.
  for (let round = 0; round < 2; round += 1) {
    const place = await markPlace(page, mark.seq);
    await page.mouse.move(place.x, place.y);
    await page.keyboard.down("Control");
    for (let turn = 0; turn < 6; turn += 1) await page.mouse.wheel(0, -60);
    await page.keyboard.up("Control");
    await settled(page);
  }
  await clickMark(page, mark.seq);
  await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
  const removed = entry.diff.split("\n").find((line) => /^\s{0,2}- .*image:/.test(line)).trim().replace(/^- +/, "");
  await page.locator(".diff .minus", { hasText: removed }).waitFor();
  await page.getByRole("button", { name: "Copy", exact: true }).first().click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), entry.undo);
  const good = await api(server.url, `entry?seq=${entry.previous}`);
  assert.equal(entry.undo, good.command);
  assert.match(entry.undo, /decklog get .* --clean \| kubectl apply -f -$/);
  await clean();
  await context.close();
});

test("a GAP in the strip is above the bars, and as quiet as on the lanes", async () => {
  const { page, clean, context } = await open("");
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForFunction((wanted) => document.documentElement.dataset.theme === wanted, scheme);
    await drawn(page);
    const found = await page.evaluate(() => {
      const canvas = document.querySelector(".strip canvas");
      const { data, width, height } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
      const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim().match(/\w\w/g).map((one) => parseInt(one, 16));
      const [gap, loud] = [colour("gap"), colour("hatch")];
      const ratio = canvas.height / canvas.getBoundingClientRect().height;
      const is = (at, wanted, least = 100) => data[at + 3] > least && wanted.every((one, index) => Math.abs(data[at + index] - one) < 12);
      let [band, low, amber] = [0, 0, 0];
      for (let y = 0; y < height; y += 1) {
        for (let x = 0; x < width; x += 1) {
          const at = 4 * (y * width + x);
          if (is(at, gap) && y < 5 * ratio) band += 1;
          // A bar that counts GAPs is no stripe; of a narrow one the edges are left.
          const isBar = [at - 4, at, at + 4].some((one) => is(one, gap, 254));
          if (is(at, gap, 0) && !isBar && y > 6 * ratio && y < height - 16 * ratio) low += 1;
          if (is(at, loud)) amber += 1;
        }
      }
      return { band, low, amber };
    });
    assert.ok(found.amber === 0 && found.low < found.band / 4, `${scheme} ${JSON.stringify(found)}`);
  }
  await clean();
  await context.close();
});

test("a GAP is hatched, and an empty lane is not", async () => {
  const { unwatched, lanes } = await api(server.url, "lanes?lanes=500&marks=10");
  const gap = unwatched.find((one) => one.resource !== null && one.from !== null && one.seq !== null);
  assert.ok(gap, "the log has a gap");
  // A quarter of the view: of a narrower range the stripes that fall into it are chance.
  const length = Math.max(Date.parse(gap.to) - Date.parse(gap.from), 100);
  const { page, clean, context } = await open(`#${between(Date.parse(gap.to) - 2 * length, Date.parse(gap.to) + 2 * length)}`);
  await drawn(page);
  const found = await page.evaluate(({ resource, why }) => {
    const { lanes, hatched } = globalThis.decklog;
    const box = document.getElementById("lanes").getBoundingClientRect();
    const seen = lanes().filter((lane) => lane.y > box.top + 20 && lane.y < box.bottom - 20);
    const inGap = seen.find((lane) => lane.id.startsWith(`${resource}/`) && hatched(lane.id).some((one) => one.why.includes(why)));
    const range = inGap ? hatched(inGap.id).find((one) => one.why.includes(why)) : null;
    const free = range && seen.find((lane) => hatched(lane.id).every((one) => one.end < range.x || one.x > range.end));
    return { range, free: free ?? null };
  }, gap);
  assert.ok(found.range, "a lane of the resource is hatched");
  assert.ok(found.range.end - found.range.x > 10);
  // Of the pixels, not of what the page believes: the colour of the hatching is in the range, and not in a lane without a gap.
  const shot = async (x, y, width, height) =>
    page.evaluate(
      async ({ png }) => {
        const image = await createImageBitmap(new Blob([Uint8Array.from(atob(png), (one) => one.charCodeAt(0))], { type: "image/png" }));
        const canvas = new OffscreenCanvas(image.width, image.height);
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        const { data } = context.getImageData(0, 0, image.width, image.height);
        const [r, g, b] = getComputedStyle(document.documentElement).getPropertyValue("--gap").trim().match(/\w\w/g).map((one) => parseInt(one, 16));
        let hits = 0;
        for (let at = 0; at < data.length; at += 4) if (Math.abs(data[at] - r) + Math.abs(data[at + 1] - g) + Math.abs(data[at + 2] - b) < 60) hits += 1;
        return hits / (data.length / 4);
      },
      { png: (await page.screenshot({ clip: { x, y, width, height } })).toString("base64") },
    );
  // At the edge of the row: marks, and the bar of an object that is known by inference alone, stand on the middle of the hatching.
  const inside = await shot(found.range.x + 2, found.range.y - 9, found.range.end - found.range.x - 4, 2);
  assert.ok(inside > 0.08 && inside < 0.6, `${inside} of the range is hatching`);
  const from = (one) => (one.from === null ? -Infinity : Date.parse(one.from));
  const missed = unwatched.filter((one) => from(one) < Date.parse(gap.to) && Date.parse(one.to) > from(gap));
  const watched = (lane) => missed.every((one) => one.resource !== null && !lane.id.startsWith(`${one.resource}/`));
  assert.ok(found.free !== null || !lanes.some(watched), "lanes of other resources are not hatched");
  if (found.free) {
    const outside = await shot(found.range.x + 2, found.free.y - 8, found.range.end - found.range.x - 4, 16);
    assert.ok(outside < 0.02, `${outside} of a lane without a gap`);
  }
  // Where no mark is.
  const places = await page.evaluate(
    (seqs) => seqs.map((seq) => globalThis.decklog.place(seq)),
    (await api(server.url, "lanes?quiet=1")).lanes.flatMap((lane) => lane.marks.map((mark) => mark.seq)),
  );
  const taken = places.filter((one) => one && Math.abs(one.y - found.range.y) < 12).map((one) => one.x);
  const free = Array.from({ length: 40 }, (_, at) => found.range.x + ((found.range.end - found.range.x) * (at + 0.5)) / 40).find((x) => taken.every((one) => Math.abs(one - x) > 14));
  assert.ok(free !== undefined, "the gap is full of marks");
  await page.mouse.click(free, found.range.y);
  await page.locator(`#panel .type-GAP`).waitFor();
  await clean();
  await context.close();
});

test("the URL is the view", async () => {
  const { lane, mark, entry } = await rollout(server.url);
  const { page, clean, context } = await open("");
  await drawn(page);
  await page.locator("#filter-namespace").fill(lane.namespace);
  await page.locator("#filter-namespace").press("Enter");
  await page.getByRole("button", { name: "spec", exact: true }).click();
  await page.evaluate((hash) => (location.hash = hash), `${around(mark.time)}&namespace=${lane.namespace}&area=spec`);
  await settled(page);
  await clickMark(page, mark.seq);
  await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
  await page.keyboard.press("u");
  const address = page.url();
  for (const part of ["since=", "until=", `namespace=${lane.namespace}`, "area=spec", `entry=${mark.seq}`, "zone=local"]) assert.ok(address.includes(part), `${address} has ${part}`);
  const look = async (one) => {
    await drawn(one);
    await one.locator(`[data-entry="${mark.seq}"]`).waitFor();
    return one.evaluate((seq) => ({ lanes: globalThis.decklog.lanes(), place: globalThis.decklog.place(seq), panel: document.getElementById("panel").innerText, range: document.querySelector(".range-title").textContent }), mark.seq);
  };
  const other = await context.newPage();
  await other.goto(address);
  assert.deepEqual(await look(other), await look(page));
  // Back returns from the entry, and forward to it.
  await page.goBack();
  await page.goBack();
  await page.locator("#panel").waitFor({ state: "detached" });
  void entry;
  await clean();
  await context.close();
});

test("two marks have a difference", async () => {
  const { lane, mark } = await rollout(server.url);
  const whole = await api(server.url, `lanes?what=deploy/${lane.name}&namespace=${lane.namespace}&marks=10000`);
  const mine = whole.lanes.find((one) => one.id === lane.id).marks.filter((one) => one.type !== "QUIET");
  const earlier = mine.filter((one) => one.seq < mark.seq).pop() ?? mine[0];
  const margin = reach / 30;
  const expected = await api(server.url, `diff?from=${Math.min(earlier.seq, mark.seq)}&to=${Math.max(earlier.seq, mark.seq)}`);
  const { page, clean, context } = await open(`#${between(Date.parse(earlier.time) - margin, Date.parse(mark.time) + margin)}&what=deploy/${lane.name}&namespace=${lane.namespace}`);
  await drawn(page);
  await clickMark(page, earlier.seq);
  await page.locator(`[data-entry="${earlier.seq}"]`).waitFor();
  await clickMark(page, mark.seq, { shift: true });
  await page.locator(`[data-diff="${earlier.seq} ${mark.seq}"]`).waitFor();
  const sign = expected.diff.split("\n").find((line) => /^\s{0,2}\+ /.test(line)).trim().replace(/^\+ +/, "");
  await page.locator(".diff .plus", { hasText: sign }).first().waitFor();
  assert.ok(page.url().includes(`against=${mark.seq}`));
  await page.getByText(expected.command).waitFor();
  await clean();
  await context.close();
});

test("everything by the keyboard", async () => {
  const { lane, mark } = await rollout(server.url);
  const { page, clean, context } = await open(`#${around(mark.time)}&what=deploy/${lane.name}&namespace=${lane.namespace}&area=spec`);
  await drawn(page);
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await focused(page, "plot");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("End");
  for (let step = 0; step < 30; step += 1) {
    const said = await page.locator('.sr[role="status"]').textContent();
    assert.match(said, new RegExp(`${lane.name}`));
    await page.keyboard.press("Enter");
    await page.locator("[data-entry]").waitFor();
    if (page.url().includes(`entry=${mark.seq}`)) break;
    await page.keyboard.press("ArrowLeft");
  }
  assert.ok(page.url().includes(`entry=${mark.seq}`), page.url());
  await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
  const { previous } = await api(server.url, `entry?seq=${mark.seq}`);
  await page.keyboard.press("p");
  await page.locator(`[data-entry="${previous}"]`).waitFor();
  await page.keyboard.press("n");
  await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
  const width = () => page.evaluate(() => new URLSearchParams(location.hash.slice(1))).then(() => page.evaluate(() => {
    const keys = new URLSearchParams(location.hash.slice(1));
    return Date.parse(keys.get("until")) - Date.parse(keys.get("since"));
  }));
  const size = await width();
  await page.keyboard.press("+");
  await settled(page);
  assert.ok((await width()) < size);
  await page.keyboard.press("Escape");
  await page.locator("#panel").waitFor({ state: "detached" });
  await focused(page, "plot");
  for (const [key, name] of [["2", "log"], ["3", "state"], ["4", "churn"], ["5", "health"]]) {
    await page.keyboard.press(key);
    await page.locator(`.page-${name}`).waitFor();
  }
  await page.keyboard.press("1");
  await drawn(page);
  await page.keyboard.press("?");
  await page.getByRole("heading", { name: "Keys" }).waitFor();
  await page.keyboard.press("Escape");
  await page.keyboard.press("/");
  await page.waitForFunction(() => document.activeElement.id === "filter-what");
  await clean();
  await context.close();
});

test("the keyboard leads into the entry that is shown and back, and what was opened is spoken", async () => {
  const { lane, mark } = await rollout(server.url);
  const { page, clean, context } = await open(`#${around(mark.time)}&what=deploy/${lane.name}&namespace=${lane.namespace}&area=spec`);
  await drawn(page);
  await page.locator("#plot").focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await page.locator("[data-entry]").waitFor();
  const seq = Number(await page.locator("[data-entry]").getAttribute("data-entry"));
  const { summary } = await api(server.url, `entry?seq=${seq}`);
  const areas = summary.areas.filter((area) => area !== "managedFields").join(", ");
  const by = summary.managers.length > 0 ? ` by ${summary.managers.join(", ")}` : "";
  const how = summary.evidence === "watched" ? "" : `, ${summary.evidence}`;
  const spoken = `${summary.type}${areas && ` ${areas}`} of ${summary.kind}/${summary.name} in ${summary.namespace}${by}${how}, opened`;
  await page.locator('.sr[role="status"]').getByText(spoken, { exact: true }).waitFor({ state: "attached" });
  for (const key of ["F6", "e"]) {
    await page.keyboard.press(key);
    await focused(page, "panel");
    await page.keyboard.press("Tab");
    assert.ok(await page.evaluate(() => document.getElementById("panel").contains(document.activeElement)));
    await page.keyboard.press(key);
    await focused(page, "plot");
  }
  await page.keyboard.press("F6");
  await page.keyboard.press("Escape");
  await focused(page, "plot");
  assert.equal(await page.locator("#panel").count(), 0);
  await page.keyboard.press("?");
  await page.locator(".help kbd", { hasText: "F6" }).waitFor();
  await clean();
  await context.close();
});

test("the keyboard has the lanes as an application, and the table beside it is a table with links", async () => {
  const { mark } = await rollout(server.url);
  const { page, clean, context } = await open(`#${around(mark.time)}`);
  await drawn(page);
  const application = page.getByRole("application", { name: /^Lanes:/ });
  await application.focus();
  assert.equal(await application.locator("table, a, button").count(), 0, "an application hides a table from who reads it");
  assert.equal(await page.locator("table.labels").evaluate((one) => one.closest('[role="application"], [role="group"]') !== null), false);
  // Tab leads from the lanes to the object that the arrows chose: each has a stop, and there are not five hundred on the way.
  for (let row = 0; row < 3; row += 1) {
    await page.keyboard.press("ArrowDown");
    await page.locator(".labels .active").waitFor();
    const chosen = await page.locator(".labels .active a.name").getAttribute("title");
    await page.keyboard.press("Shift+Tab");
    assert.equal(await page.evaluate(() => document.activeElement.title), chosen);
    assert.equal(await page.locator('.labels a[tabindex="0"]').count(), 1);
    await page.keyboard.press("Tab");
    await focused(page, "plot");
  }
  await clean();
  await context.close();
});

test("a wrong filter says what the command line says, and shows nothing", async () => {
  const { page, clean, context } = await open("#since=2h");
  await drawn(page);
  await page.locator("#filter-where").fill("kind ==");
  await page.locator("#filter-where").press("Enter");
  const refused = await ask(server.url, `lanes?since=2h&where=${encodeURIComponent("kind ==")}`);
  const told = (await refused.json()).error;
  await page.locator("#wrong-where").waitFor();
  assert.equal(await page.locator("#wrong-where").innerText(), told.trimEnd());
  assert.equal(await page.locator("#filter-where").getAttribute("aria-invalid"), "true");
  assert.equal(await page.evaluate(() => globalThis.decklog.lanes().length), 0, "what another filter found is gone");
  await page.locator("#filter-where").fill('kind == "Deployment"');
  await page.locator("#filter-where").press("Enter");
  await page.waitForFunction(() => globalThis.decklog.lanes().length > 0);
  assert.ok(await page.evaluate(() => globalThis.decklog.lanes().every((lane) => lane.id.startsWith("deployments.apps/"))));
  await clean();
  await context.close();
});

test("the filter By shows what one program wrote, and the panel says why nobody is named", async () => {
  const { mark } = await rollout(server.url);
  const name = mark.managers[0];
  const { page, clean, context } = await open(`#${around(mark.time)}`);
  await drawn(page);
  assert.ok((await page.locator("#known-by option").evaluateAll((all) => all.map((one) => one.value))).includes(name), "the names of the window are offered");
  const all = await page.evaluate(() => globalThis.decklog.lanes().length);
  await page.locator("#filter-by").fill(`${name.slice(0, -1)}*`);
  await page.locator("#filter-by").press("Enter");
  await page.waitForFunction((all) => globalThis.decklog.lanes().length < all, all);
  assert.match(await page.evaluate(() => location.hash), /[#&]by=/);
  const wanted = (await api(server.url, `entries?by=${encodeURIComponent(name)}&limit=200`)).entries;
  assert.ok(wanted.length > 0 && wanted.every((entry) => entry.managers.includes(name)));
  const { entries } = await api(server.url, "entries?limit=1000");
  const nameless = entries.find((entry) => entry.unnamed !== undefined);
  if (nameless) {
    await page.evaluate((seq) => (location.hash = `#entry=${seq}`), nameless.seq);
    await page.locator(".panel .unnamed").waitFor();
    assert.match(await page.locator(".panel .unnamed").innerText(), /^nobody is named: .*audit log/);
  }
  await clean();
  await context.close();
});

test("who sent a change stands under the programs, and behind its line in the log", { skip: given !== null ? "needs the made-up log" : false }, async () => {
  const { mark } = await rollout(server.url);
  const { summary } = await api(server.url, `entry?seq=${mark.seq}`);
  const words = `by ${summary.actor.user} (${summary.actor.agent}, ${summary.actor.addresses[0]}, audit: ${summary.actor.certainty})`;
  const { page, clean, context } = await open(`#page=log&${around(summary.time)}&entry=${mark.seq}`);
  await page.locator(".panel .sender", { hasText: words }).waitFor();
  await page.locator("tr.chosen .sender", { hasText: words }).waitFor();
  await clean();
  await context.close();
});

test("the page of one object has its incarnations, its past and its blame", async () => {
  const { lane } = await rollout(server.url);
  const { page, clean, context } = await open(`#page=object&object=${lane.id}`);
  const answer = await api(server.url, `object?resource=${lane.resource}&namespace=${lane.namespace}&name=${lane.name}`);
  await page.locator(".lives tbody tr").first().waitFor();
  assert.equal(await page.locator(".lives tbody tr").count(), answer.lane.bars.length);
  await page.getByRole("tab", { name: "Blame" }).click();
  if (answer.blame.length > 0) await page.getByRole("cell", { name: answer.blame[0].path, exact: true }).first().waitFor();
  // As it was at its first entry, and not as it is.
  const first = answer.entries[answer.entries.length - 1].seq;
  const then = await api(server.url, `object?resource=${lane.resource}&namespace=${lane.namespace}&name=${lane.name}&at=${first}`);
  assert.notEqual(then.yaml, answer.yaml);
  await page.locator(".at-form input").fill(String(first));
  await page.locator(".at-form button").click();
  await page.getByRole("tab", { name: `The object at ${then.at}` }).waitFor();
  assert.equal((await page.locator('.code[aria-label="The object as YAML"] > div').allInnerTexts()).join("\n"), then.yaml.replace(/\n$/, ""));
  await clean();
  await context.close();
});

test("as of a moment, churn and health", async () => {
  const { mark } = await rollout(server.url);
  const { page, clean, context } = await open(`#page=state&at=${mark.seq}`);
  const state = await api(server.url, `state?at=${mark.seq}`);
  await page.locator(".grid tbody tr").first().waitFor();
  assert.equal(await page.locator(".grid tbody tr").count(), state.objects.length);
  await page.getByRole("link", { name: "Churn" }).click();
  await page.getByRole("heading", { name: "Written most" }).waitFor();
  await page.getByRole("link", { name: /Health/ }).click();
  const overview = await api(server.url, "overview");
  for (const source of overview.sources) await page.getByRole("cell", { name: source.name, exact: true }).first().waitFor();
  for (const alarm of overview.alarms) await page.getByText(alarm.name, { exact: true }).first().waitFor();
  await clean();
  await context.close();
});

test("what became of objects between two moments", async () => {
  const { mark, lane, entry } = await rollout(server.url);
  const { page, clean, context } = await open("#page=state");
  await page.locator("#as-of").fill(String(mark.seq));
  await page.getByLabel("changed since").fill(String(entry.previous));
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.locator(`[data-changes="${entry.previous} ${mark.seq}"]`).waitFor();
  const { objects } = await api(server.url, `changes?from=${entry.previous}&to=${mark.seq}`);
  assert.equal(await page.locator(".grid tbody tr").count(), objects.length);
  assert.equal(objects.find((object) => object.id === lane.id).became, "changed");
  const row = page.locator(".grid tbody tr", { has: page.locator(`a[href*="object=${encodeURIComponent(lane.id).replace(/%2F/g, "/")}"]`) });
  await row.getByRole("button", { name: "Difference" }).click();
  await page.locator(`[data-diff="${entry.previous} ${mark.seq}"]`).waitFor();
  // The moments are in the address; and one after the other is refused in its field.
  const again = await open(new URL(page.url()).hash);
  await again.page.locator(`[data-changes="${entry.previous} ${mark.seq}"]`).waitFor();
  await page.locator("#as-of").fill(String(entry.previous));
  await page.getByLabel("changed since").fill(String(mark.seq));
  await page.getByRole("button", { name: "Show", exact: true }).click();
  await page.getByText("swap them").waitFor();
  assert.equal(await page.getByLabel("changed since").getAttribute("aria-invalid"), "true");
  await again.clean();
  await again.context.close();
  await clean();
  await context.close();
});

test("no serious finding of axe, on any page, light and dark", async () => {
  const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  const { mark, lane } = await rollout(server.url);
  const found = [];
  for (const colorScheme of ["light", "dark"]) {
    for (const hash of [
      `#${around(mark.time)}`, `#${around(mark.time)}&entry=${mark.seq}`, `#${around(mark.time)}&where=kind%20%3D%3D`, `#page=log&${around(mark.time)}`, `#page=object&object=${lane.id}`,
      `#page=state&at=${mark.seq}`, `#page=state&from=1&at=${mark.seq}`, "#page=churn&since=6h", "#page=health",
    ]) {
      // The policy of the page forbids what is put into it, axe included; its own tests are above.
      const context = await chrome.newContext({ viewport: { width: 1280, height: 800 }, colorScheme, bypassCSP: true });
      const page = await context.newPage();
      await page.goto(`${server.url}${hash}`);
      const shown = { log: "tbody tr", object: ".lives tbody tr", state: ".grid tbody tr", churn: "h2", health: "h2" }[new URLSearchParams(hash.slice(1)).get("page")];
      if (shown) await page.locator(shown).first().waitFor();
      else if (hash.includes("where=")) await page.locator("#wrong-where").waitFor();
      else await drawn(page);
      if (hash.includes("entry=")) await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
      await settled(page);
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      for (const one of violations) {
        const line = `${colorScheme} ${hash}: ${one.impact} ${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary?.slice(0, 300)}`).join(" | ")}`;
        if (one.impact === "serious" || one.impact === "critical") found.push(line);
        else console.log(line);
      }
      await context.close();
    }
  }
  assert.deepEqual(found, []);
});

test("it fits from 360 pixels to 4K", async () => {
  const { mark } = await rollout(server.url);
  for (const [width, height] of [[360, 740], [768, 1024], [1280, 800], [3840, 2160]]) {
    for (const colorScheme of ["light", "dark"]) {
      const { page, clean, context } = await open(`#${around(mark.time)}${width > 1000 ? `&entry=${mark.seq}` : ""}`, { viewport: { width, height }, colorScheme });
      await drawn(page);
      if (width > 1000) await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(over <= 0, `${width}: ${over} pixels too wide`);
      const outside = await page.evaluate(() =>
        [...document.querySelectorAll(".top *, .controls *, .strip *, .status *, .lanes, .panel")]
          .filter((one) => !one.closest("nav, .sr, .skip, datalist") && one.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(one).position !== "absolute")
          .map((one) => one.outerHTML.slice(0, 120)),
      );
      assert.deepEqual(outside, [], `${width}: beyond the edge`);
      await clean();
      await context.close();
    }
  }
});

test("a phone: the panel covers, and closes", async () => {
  const { mark } = await rollout(server.url);
  const { page, clean, context } = await open(`#${around(mark.time)}`, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  await drawn(page);
  const place = await markPlace(page, mark.seq);
  await page.touchscreen.tap(place.x, place.y);
  await page.locator("[data-entry]").waitFor();
  const box = await page.locator("#panel").boundingBox();
  assert.ok(box.width >= 358 && box.height >= 700);
  await page.getByRole("button", { name: "Close" }).click();
  await page.locator("#panel").waitFor({ state: "detached" });
  await clean();
  await context.close();
});

test("what the panel covers is not reached by Tab", async () => {
  const { mark } = await rollout(server.url);
  for (const [width, covered] of [[1280, ""], [800, ".lanes"], [360, ".lanes, .top, .controls, .strip, .legend"]]) {
    const { page, clean, context } = await open(`#${around(mark.time)}`, { viewport: { width, height: 740 } });
    await drawn(page);
    await clickMark(page, mark.seq);
    await page.locator("[data-entry]").waitFor();
    const stops = [];
    for (let step = 0; step < 60; step += 1) {
      await page.keyboard.press("Tab");
      stops.push(await page.evaluate((what) => (what !== "" && document.activeElement.closest(what) ? document.activeElement.outerHTML.slice(0, 80) : document.activeElement.id), covered));
    }
    assert.deepEqual(stops.filter((one) => one.startsWith("<")), [], `${width}`);
    assert.equal(await page.evaluate(() => (document.getElementById("plot").focus(), document.activeElement.id)) === "plot", covered === "", `${width}`);
    await page.keyboard.press("Escape");
    await page.locator("#panel").waitFor({ state: "detached" });
    await focused(page, "plot");
    await clean();
    await context.close();
  }
});

/** Until `back` is called, decklog cannot answer what is asked at this path. */
async function outage(page, path) {
  const pattern = new RegExp(`/api/v1/${path}\\?`);
  await page.route(pattern, (route) => route.fulfill({ status: 503, contentType: "application/json", body: JSON.stringify({ error: `no time for ${path}` }) }));
  return { back: () => page.unroute(pattern) };
}

test("an entry, an object, a moment and churn stay where decklog cannot answer, and are asked for again", async () => {
  const { lane, mark, entry } = await rollout(server.url);
  const { page, clean, context } = await open(`#${around(mark.time)}&entry=${mark.seq}`);
  const fails = async (path, act, stays, comes) => {
    await stays.first().waitFor();
    await settled(page);
    const down = await outage(page, path);
    await act();
    await page.getByText(`no time for ${path}`).waitFor();
    await stays.first().waitFor();
    // Asked again in vain, and then not.
    await page.getByRole("button", { name: "Try again" }).click();
    await settled(page);
    await stays.first().waitFor();
    await down.back();
    await page.getByRole("button", { name: "Try again" }).click();
    await page.locator(".problem").waitFor({ state: "detached" });
    await comes.first().waitFor();
  };
  await fails("entry", () => page.getByRole("button", { name: "‹ Previous" }).click(), page.locator(`[data-entry="${mark.seq}"]`), page.locator(`[data-entry="${entry.previous}"]`));
  await page.evaluate((hash) => (location.hash = hash), `page=object&object=${lane.id}`);
  await page.getByRole("tab", { name: "Blame" }).click();
  const moment = async () => {
    await page.locator(".at-form input").fill(String(mark.seq));
    await page.locator(".at-form button").click();
    await page.getByRole("tab", { name: "Blame" }).click();
  };
  await fails("object", moment, page.locator("#tab-panel > *"), page.getByRole("tab", { name: `The object at ${mark.seq}` }));
  const then = await api(server.url, `state?at=${entry.previous}`);
  await page.evaluate((hash) => (location.hash = hash), `page=state&at=${mark.seq}`);
  await fails("state", () => page.evaluate((hash) => (location.hash = hash), `page=state&at=${entry.previous}`), page.locator(".grid tbody tr"), page.getByText(`entry ${then.seq}`));
  await page.evaluate((hash) => (location.hash = hash), `page=churn&${around(mark.time)}`);
  await fails("churn", () => page.evaluate((hash) => (location.hash = hash), "page=churn&since=all"), page.getByRole("heading", { name: "Written most" }), page.getByRole("heading", { name: "Written most" }));
  await clean();
  await context.close();
});

test("older pages of the log are asked for again", { skip: given !== null ? "needs more than a page" : false }, async () => {
  const { page, clean, context } = await open("#page=log&since=all&quiet=1");
  const rows = page.locator(".entries tbody tr");
  await rows.first().waitFor();
  await settled(page);
  const first = await rows.count();
  const down = await outage(page, "entries");
  await page.getByRole("button", { name: "Show older entries" }).click();
  await page.getByText("no time for entries").waitFor();
  assert.equal(await rows.count(), first);
  await down.back();
  await page.getByRole("button", { name: "Try again" }).click();
  await page.waitForFunction((before) => document.querySelectorAll(".entries tbody tr").length > before, first);
  assert.equal(await page.locator(".problem").count(), 0);
  await clean();
  await context.close();
});

// ---- with the made-up log only: a real one does not do these things when it is told to ---------------------------------

const made = { skip: given !== null ? "needs the made-up log" : false };

test("a live page loses nothing in a reconnect, and shows nothing twice", made, async () => {
  const before = server.dev.asked.length;
  const asked = (name) => server.dev.asked.slice(before).filter((one) => one.startsWith(name));
  let loads = 0;
  const { page, clean, context } = await open("#since=1h&what=deploy/web&namespace=shop");
  await drawn(page);
  await page.locator(".live-live").waitFor();
  const marks = () => page.evaluate(() => globalThis.decklog.lanes().find((lane) => lane.id === "deployments.apps/shop/web").marks);
  const start = await marks();
  const change = (value) => fetch(`${server.url}dev/append`, { method: "POST", body: JSON.stringify({ type: "MODIFIED", kind: "Deployment", namespace: "shop", name: "web", path: "/spec/replicas", value, managers: ["kubectl"] }) });
  await change(4);
  await page.waitForFunction((number) => globalThis.decklog.lanes().find((lane) => lane.id === "deployments.apps/shop/web").marks === number, start + 1);
  loads = asked("lanes").length;
  await fetch(`${server.url}dev/cut`, { method: "POST" });
  await change(5);
  await change(6);
  await page.waitForFunction((number) => globalThis.decklog.lanes().find((lane) => lane.id === "deployments.apps/shop/web").marks >= number, start + 3, { timeout: 20_000 });
  assert.equal(await marks(), start + 3);
  const cursors = asked("follow").map((one) => new URLSearchParams(one.split("?")[1]).get("after"));
  assert.ok(new Set(cursors).size > 1, `the second stream begins where the first ended: ${cursors}`);
  const lanes = asked("lanes").length;
  assert.equal(lanes, loads, "a reconnect does not load the window");
  // Behind: the window is loaded.
  const loaded = page.waitForResponse(/\/api\/v1\/lanes\?/);
  await fetch(`${server.url}dev/reload`, { method: "POST" });
  await loaded;
  await clean();
  await context.close();
});

test("what a resting pointer shows is what is under it after a load", made, async () => {
  const { page, clean, context } = await open("#since=1h");
  await drawn(page);
  await page.locator(".live-live").waitFor();
  const lane = await page.evaluate(() => globalThis.decklog.lanes().find((one, index, all) => all[index - 1]?.id === "deployments.apps/shop/web"));
  const box = await page.locator("#plot").boundingBox();
  await page.mouse.move(box.x + box.width / 2, lane.y);
  await page.locator(".tip strong", { hasText: lane.id.split("/")[2] }).waitFor();
  // A namespace of its own comes above, and all that stands below moves down.
  await fetch(`${server.url}dev/append`, { method: "POST", body: JSON.stringify({ type: "ADDED", kind: "Pod", namespace: "a", name: "new", set: { spec: {} }, managers: ["kubelet"] }) });
  await page.waitForFunction(() => globalThis.decklog.lanes().some((lane) => lane.id === "pods/a/new"));
  await page.waitForFunction((at) => {
    const under = globalThis.decklog.lanes().find((lane) => Math.abs(lane.y - at) < 12);
    const shown = document.querySelector(".tip strong")?.textContent ?? null;
    return under ? shown?.endsWith(`/${under.id.split("/")[2]}`) : shown === null;
  }, lane.y, { timeout: 5000 });
  await clean();
  await context.close();
});

test("the strip says where nothing was counted", made, async () => {
  const { page, clean, context } = await open();
  await drawn(page);
  assert.equal(await page.locator(".uncounted").count(), 0);
  let edge = "";
  await page.route(/\/api\/v1\/histogram\?/, async (route) => {
    const answer = await (await route.fetch()).json();
    const [from, to] = [Date.parse(answer.since), Date.parse(answer.until)];
    edge = new Date(from + (to - from) / 2).toISOString();
    await route.fulfill({ json: { ...answer, truncated: { before: edge } } });
  });
  await page.locator(".strip-side select").selectOption("24h");
  await page.locator(".uncounted").waitFor();
  const text = await page.locator(".uncounted").innerText();
  assert.ok(text.startsWith(`Not counted before ${edge.slice(0, 10)}`), text);
  assert.match(await page.locator(".strip-side .total").innerText(), /entries counted$/);
  // The edge of the veil is drawn, in the middle.
  const drawnAt = await page.evaluate(() => {
    const canvas = document.querySelector(".strip canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 2, canvas.width, 1);
    const wanted = getComputedStyle(document.documentElement).getPropertyValue("--edge").trim().match(/\w\w/g).map((one) => parseInt(one, 16));
    return Array.from({ length: canvas.width }, (_, x) => x).filter((x) => wanted.every((one, at) => Math.abs(one - data[x * 4 + at]) < 8)).map((x) => x / canvas.width);
  });
  assert.ok(drawnAt.some((share) => Math.abs(share - 0.5) < 0.01), JSON.stringify(drawnAt));
  await clean();
  await context.close();
});

test("churn says what was left out, and what to do", made, async () => {
  const { page, clean, context } = await open();
  await drawn(page);
  let left = false;
  await page.route(/\/api\/v1\/churn\?/, async (route) => {
    const answer = await (await route.fetch()).json();
    const writers = Array.from({ length: left ? 100 : 3 }, () => answer.writers[0]);
    await route.fulfill({ json: { ...answer, writers, truncated: left } });
  });
  const said = [page.getByText(/^Only a part of this window was counted: .* Choose a shorter one, or run decklog churn\.$/), page.getByText(/^A list has 100 rows at most/)];
  await page.evaluate(() => (location.hash = "page=churn&since=6h"));
  await page.getByRole("heading", { name: "Written most" }).waitFor();
  for (const one of said) assert.equal(await one.count(), 0);
  left = true;
  await page.evaluate(() => (location.hash = "page=churn&since=24h"));
  for (const one of said) await one.waitFor();
  await clean();
  await context.close();
});

test("a seventh window side by side still loads", made, async () => {
  const context = await chrome.newContext({ viewport: { width: 800, height: 600 } });
  const windows = [];
  for (let number = 0; number < 7; number += 1) {
    const { page, clean } = await watched(context, { origin: server.url });
    await page.goto(`${server.url}#since=1h&what=deploy/web&namespace=shop`, { timeout: 10_000 });
    await drawn(page);
    await page.locator(number < 4 ? ".live-live" : ".live-turn").waitFor();
    windows.push({ page, clean });
  }
  // One that nobody sees any more gives its stream away, and the seventh takes it when it asks the next time.
  const [first, last] = [windows[0].page, windows[6].page];
  await first.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await first.locator(".live-off").waitFor();
  await last.evaluate(() => navigator.locks.request("decklog-stream-0", () => {}));
  await last.reload();
  await last.locator(".live-live").waitFor();
  for (const { clean } of windows) await clean();
  await context.close();
});

test("the page of an object says that there is a newer entry of it", made, async () => {
  const { page, clean, context } = await open("#page=object&object=deployments.apps/shop/web");
  const newest = () => page.locator(".entries .seq").first().textContent().then(Number);
  await page.locator(".entries .seq").first().waitFor();
  const before = await newest();
  const change = (name, value) => fetch(`${server.url}dev/append`, { method: "POST", body: JSON.stringify({ type: "MODIFIED", kind: "Deployment", namespace: "shop", name, path: "/spec/replicas", value, managers: ["kubectl"] }) });
  const notice = page.getByRole("button", { name: "There is a newer entry of this object: read again" });
  for (const value of [7, 8]) {
    await change("search", value);
    await change("web", value);
    const { head } = await api(server.url, "overview");
    await notice.click();
    await page.locator(`.entries [data-seq="${head.seq}"]`).waitFor();
    await notice.waitFor({ state: "detached" });
  }
  assert.ok((await newest()) > before);
  await clean();
  await context.close();
});

test("hostile data is shown and does not run", { skip: given !== null && cluster === null ? "the log has none" : false }, async () => {
  const { lanes } = await api(server.url, "lanes?namespace=hostile&quiet=1");
  const { page, clean, context } = await open("#since=24h&namespace=hostile&quiet=1");
  await drawn(page);
  assert.ok(lanes.length >= 2);
  // Whatever is shown: no markup of others, and no control of theirs that hides or turns a line.
  const inert = async () => {
    assert.equal(await page.locator("img, script:not([src]), iframe, [onerror], [onmouseover], [href^='javascript']").count(), 0);
    const raw = await page.evaluate(() => [...document.documentElement.innerText.matchAll(/[\u202a-\u202e\u2066-\u2069\u200b\u0000\u001b]/g)].length);
    assert.equal(raw, 0);
  };
  for (const lane of lanes) {
    for (const mark of lane.marks) {
      await page.evaluate((hash) => (location.hash = hash), `since=24h&namespace=hostile&quiet=1&entry=${mark.seq}`);
      await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
      await page.locator("#panel summary").click();
      await inert();
      const place = await markPlace(page, mark.seq);
      await page.mouse.move(place.x, place.y);
      await page.locator(".tip").waitFor();
    }
    for (const one of ["object", "log", "state", "churn"]) {
      await page.evaluate((hash) => (location.hash = hash), `page=${one}&object=${encodeURIComponent(lane.id)}&since=24h&namespace=hostile`);
      await page.locator(`.page-${one} .list`).waitFor();
      await settled(page);
      for (const tab of await page.getByRole("tab").all()) {
        await tab.click();
        await inert();
      }
      await inert();
    }
    await page.evaluate((hash) => (location.hash = hash), "since=24h&namespace=hostile&quiet=1");
    await drawn(page);
  }
  await inert();
  // A megabyte is cut, and there is a way to see more.
  const long = lanes.flatMap((lane) => lane.marks).find((mark) => mark.managers.some((manager) => manager.includes("constructor")));
  await page.evaluate((hash) => (location.hash = hash), `since=24h&namespace=hostile&quiet=1&entry=${long.seq}`);
  await page.locator(`[data-entry="${long.seq}"]`).waitFor();
  const shown = () => page.locator(".diff .plus, .diff .minus").first().evaluate((one) => one.textContent.length);
  const short = await shown();
  assert.ok(short < 1000, `${short} characters at once`);
  await page.locator(".diff .more").first().click();
  await page.waitForFunction((before) => document.querySelector(".diff .plus, .diff .minus").textContent.length > before * 10, short);
  await clean();
  await context.close();
});

test("a server that went away is asked again, and its window is loaded", made, async () => {
  const own = await target();
  const port = Number(new URL(own.url).port);
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
  const { page } = await watched(context, { origin: own.url });
  await page.goto(`${own.url}#since=15m`);
  await drawn(page);
  await own.stop();
  await page.evaluate(() => (location.hash = "since=1h"));
  await page.getByText("decklog does not answer").first().waitFor();
  assert.equal(await page.evaluate(() => globalThis.decklog.lanes().length), 0);
  const again = await target({ port });
  await page.waitForFunction(() => globalThis.decklog.lanes().length > 0, null, { timeout: 40_000 });
  await page.locator(".live-live").waitFor();
  await again.stop();
  await context.close();
});

test("what a source does not watch at the moment is hatched up to now", made, async () => {
  const { page, clean, context } = await open("#since=1h&what=secret/db");
  await drawn(page);
  const [range] = await page.evaluate(() => globalThis.decklog.hatched("secrets/shop/db"));
  assert.ok(range && range.why.includes("degraded"), JSON.stringify(range));
  await clean();
  await context.close();
});
