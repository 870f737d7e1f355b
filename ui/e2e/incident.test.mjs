// The page answers what happened within ten seconds: an incident of ten minutes beside all that goes on by itself. What was done
// is on the first lanes, on a desk and on a phone.
//
//   DECKLOG_UI_URL    the page of the log of the incident
//   DECKLOG_UI_FILE   the file of a part of it
//   DECKLOG_UI_DONE   where it is another incident, what was done: {"since", "until", "done": [[id, …], …]}

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { api, browser, clickMark, drawn, settled, target, watched } from "./page.mjs";

const SIZES = [[1600, 1000], [390, 844]];
/** What was done: for each thing the ids of its lanes, of which one is enough. */
const { since, until, done: DONE } = process.env.DECKLOG_UI_DONE
  ? JSON.parse(process.env.DECKLOG_UI_DONE)
  : {
      since: "2026-11-20T10:20:00Z",
      until: "2026-11-20T10:30:00Z",
      done: [
        ["deployments.apps/shop/web"], ["configmaps/shop/settings"], ["secrets/shop/db"], ["networkpolicies.networking.k8s.io/shop/deny-all"], ["deployments.apps/shop/cart"],
        ["configmaps/shop/old-1", "configmaps/shop/old-2", "services/shop/legacy", "deployments.apps/shop/legacy"],
        ["clusterrolebindings.rbac.authorization.k8s.io//shop-admin"], ["nodes//worker-1"],
      ],
    };
const RANGE = `since=${since}&until=${until}`;

let chrome;
let server;
before(async () => {
  chrome = await browser();
  server = await target();
});
after(async () => {
  await chrome?.close();
  await server?.stop();
});

async function open(hash, [width, height], url = server.url, origin = server.url) {
  const context = await chrome.newContext({ viewport: { width, height } });
  const one = await watched(context, { origin });
  await one.page.goto(`${url}${hash}`);
  await drawn(one.page);
  return { ...one, context };
}

/** The ids of the lanes that are seen without scrolling, from above. */
const seen = (page) =>
  page.evaluate(() => {
    const box = document.getElementById("lanes").getBoundingClientRect();
    const all = globalThis.decklog.lanes().sort((one, other) => one.y - other.y);
    return all.filter((lane) => lane.y > box.top && lane.y < Math.min(box.bottom, innerHeight)).map((lane) => lane.id);
  });

test("what was done is on the first ten lanes", async () => {
  for (const size of SIZES) {
    // As the page opens, and for the minutes of the incident.
    for (const hash of ["", `#${RANGE}`]) {
      const { page, clean, context } = await open(hash, size);
      const first = (await seen(page)).slice(0, 10);
      for (const ids of DONE) assert.ok(ids.some((id) => first.includes(id)), `${size} ${hash}: ${ids} is not among ${first}`);
      await clean();
      await context.close();
    }
  }
});

test("what follows is folded below its cause, and the order by name is in the address", async () => {
  const { page, clean, context } = await open(`#${RANGE}`, SIZES[0]);
  const below = () => page.evaluate(() => globalThis.decklog.lanes().filter((lane) => lane.id.startsWith("pods/shop/web-7c9b")).length);
  assert.equal(await below(), 0);
  await page.locator(".labels tr", { hasText: "deploy/web" }).getByRole("button").click();
  assert.match(new URL(page.url()).hash, /fold=deployments\.apps\/shop\/web/);
  await page.locator(".labels tr", { hasText: "rs/web-7c9b" }).getByRole("button").click();
  await page.waitForFunction(() => globalThis.decklog.lanes().filter((lane) => lane.id.startsWith("pods/shop/web-7c9b")).length === 2);
  await page.getByLabel("Order", { exact: true }).selectOption("names");
  await settled(page);
  assert.match(new URL(page.url()).hash, /order=names/);
  const ids = await seen(page);
  assert.equal(ids[0], "clusterrolebindings.rbac.authorization.k8s.io//shop-admin");
  assert.equal(await page.locator(".row-ns").count() > 1, true);
  await clean();
  await context.close();
});

test("the panel offers to undo the change first", async () => {
  const { lanes } = await api(server.url, `lanes?${RANGE}`);
  const newest = (name, type) => lanes.find((lane) => lane.name === name).marks.filter((mark) => mark.type === type).pop();
  const cases = [["settings", "MODIFIED", /--at \d+ --clean \| kubectl apply -f -$/], ["deny-all", "ADDED", /^kubectl delete networkpolicies\.networking\.k8s\.io\/deny-all -n shop$/], ["old-1", "DELETED", /--at \d+ --clean \| kubectl apply -f -$/]];
  for (const [name, type, wanted] of cases) {
    const { seq } = newest(name, type);
    const { previous, undo } = await api(server.url, `entry?seq=${seq}`);
    assert.match(undo, wanted);
    if (type !== "ADDED") assert.ok(undo.includes(`--at ${previous} `), undo);
    const { page, clean, context } = await open(`#${RANGE}&entry=${seq}`, SIZES[0]);
    await page.locator(`[data-entry="${seq}"]`).waitFor();
    assert.equal(await page.locator("#panel .command code").first().innerText(), undo);
    const heads = await page.locator("#panel section h3").allInnerTexts();
    assert.match(heads[0], /^Undo this change/);
    assert.equal(heads[1] === "Go back to this version", type !== "DELETED", `${heads}`);
    await clean();
    await context.close();
  }
});

test("a tip is whole at every edge, and a click takes it away", async () => {
  for (const size of SIZES) {
    const { page, clean, context } = await open("", size);
    const plot = await page.locator("#plot").boundingBox();
    const foot = await page.locator(".status").boundingBox();
    for (const x of [plot.x + 3, plot.x + plot.width / 2 - 2, plot.x + plot.width / 2 + 2, plot.x + plot.width - 4]) {
      for (const y of [plot.y + 5, foot.y - 6]) {
        await page.mouse.move(x, y);
        await page.locator(".tip").waitFor();
        await settled(page);
        const tip = await page.locator(".tip").boundingBox();
        const place = `${size} ${x} ${y}: ${JSON.stringify(tip)}`;
        assert.ok(tip.x >= 0 && tip.x + tip.width <= size[0] && tip.y >= 0 && tip.y + tip.height <= foot.y, place);
        const on = await page.evaluate(({ x, y, width, height }) => {
          const tip = document.querySelector(".tip");
          tip.style.pointerEvents = "auto";
          const whole = [[x + 2, y + 2], [x + width - 2, y + 2], [x + 2, y + height - 2], [x + width - 2, y + height - 2]].every(([x, y]) => tip.contains(document.elementFromPoint(x, y)));
          tip.style.pointerEvents = "";
          return whole;
        }, tip);
        assert.ok(on, `${place} is cut`);
      }
    }
    await page.mouse.click(plot.x + 3, plot.y + 5);
    await page.locator(".tip").waitFor({ state: "detached" });
    await clean();
    await context.close();
  }
});

test("j and k choose a lane, and Enter opens it, whatever was focused", async () => {
  const { page, clean, context } = await open(`#${RANGE}`, SIZES[0]);
  await page.getByRole("link", { name: "Churn" }).focus();
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  const chosen = await page.locator(".labels .active a.name").getAttribute("title");
  await page.keyboard.press("Enter");
  await page.locator("[data-entry] .object").first().waitFor();
  assert.equal(await page.locator("[data-entry] .panel-head .object").getAttribute("title"), chosen);
  await page.keyboard.press("k");
  assert.notEqual(await page.locator(".labels .active a.name").getAttribute("title"), chosen);
  await clean();
  await context.close();
});

test("two Pods of one owner are told apart on a phone", async () => {
  const { page, clean, context } = await open(`#${RANGE}&what=pods`, SIZES[1]);
  const names = page.locator(".labels a.name", { hasText: "web-7c9b-" });
  assert.equal(await names.count(), 2);
  for (const name of await names.all()) {
    const [tail, row] = [await name.locator("> .t").boundingBox(), await name.boundingBox()];
    assert.ok(tail.width > 20 && tail.x + tail.width <= row.x + row.width + 1, JSON.stringify([tail, row]));
    const whole = await name.locator("> .t").evaluate((one) => one.scrollWidth <= one.parentElement.clientWidth && one.getBoundingClientRect().right <= one.closest("th").getBoundingClientRect().right);
    assert.ok(whole, await name.innerText());
  }
  await clean();
  await context.close();
});

test("without a daemon Health says what status says", async () => {
  const { page, clean, context } = await open(`#${RANGE}`, SIZES[0]);
  await page.evaluate(() => (location.hash = "page=health"));
  await page.locator(".health").waitFor();
  const text = await page.locator(".health").innerText();
  assert.match(text, /not running: no daemon has watched since 2026-11-20/);
  const cells = await page.locator(".health table").first().locator("tbody td:nth-child(2)").allInnerTexts();
  assert.ok(cells.length > 0 && cells.every((cell) => cell.trim().startsWith("was ")), `${cells}`);
  await clean();
  await context.close();
});

test("lists say everything once, and the same as the commands", async () => {
  const { page, clean, context } = await open(`#${RANGE}`, SIZES[0]);
  await page.evaluate((range) => (location.hash = `page=log&${range}`), RANGE);
  await page.locator(".entries tbody tr").first().waitFor();
  for (const row of await page.locator(".entries tbody tr").all()) {
    const [, , , , areas, what] = await row.locator("td").allInnerTexts();
    const twice = areas.split(/\s+/).filter((area) => area !== "" && new RegExp(`^${area}([ .]|$)`).test(what.trim()));
    assert.deepEqual(twice, [], `${areas}: ${what}`);
  }
  await page.evaluate((range) => (location.hash = `page=churn&${range}`), RANGE);
  await page.getByRole("heading", { name: "Fought over" }).waitFor();
  const { fights } = await api(server.url, `churn?${RANGE}`);
  assert.ok(fights.length > 0);
  const table = page.locator(".grid", { hasText: "contested" }).first();
  assert.equal(await table.locator("thead th").first().innerText(), "Writes");
  assert.equal(await table.locator("tbody td").first().innerText(), String(fights[0].writes));
  assert.equal(await page.getByRole("columnheader", { name: "In a line" }).count(), 0);
  await clean();
  await context.close();
});

test("what is not recorded is quieter than a change", async () => {
  const { page, clean, context } = await open(`#${RANGE}`, SIZES[0]);
  for (const scheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: scheme });
    await page.waitForFunction((wanted) => document.documentElement.dataset.theme === wanted, scheme);
    const contrast = await page.evaluate(() => {
      const read = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim().match(/\w\w/g).map((one) => parseInt(one, 16) / 255);
      const light = (name) => read(name).map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)).reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
      const to = (name) => (Math.max(light(name), light("ground")) + 0.05) / (Math.min(light(name), light("ground")) + 0.05);
      return { gap: to("gap"), changes: ["added", "deleted", "spec", "data", "other", "metadata", "status"].map(to) };
    });
    assert.ok(contrast.changes.every((one) => one > 1.5 * contrast.gap), JSON.stringify(contrast));
  }
  await clean();
  await context.close();
});

test("a file of a part says whose it is", { skip: process.env.DECKLOG_UI_FILE ? false : "needs a file" }, async () => {
  for (const size of SIZES) {
    const { page, clean, context } = await open("", size, pathToFileURL(process.env.DECKLOG_UI_FILE).href, "file://");
    const about = await page.locator(".about").innerText();
    assert.match(about.replaceAll("\n", " "), /Namespace shop/);
    const title = await page.locator(".range-title").innerText();
    assert.match(title, /2026-11-20 10:20:00 for 10m/);
    assert.doesNotMatch(await page.locator(".controls").innerText(), /Whole log/);
    const first = (await seen(page)).slice(0, 10);
    for (const name of ["web", "settings", "db", "deny-all", "cart"]) assert.ok(first.some((id) => id.endsWith(`/shop/${name}`)), `${name}: ${first}`);
    await clean();
    await context.close();
  }
});
