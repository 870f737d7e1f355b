// The one-file form: opened from disk, with the network off.
//
//   DECKLOG_UI_FILE   a file that `decklog timeline --html` wrote; without it, one of the made-up log

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Api, fileData } from "../dev/api.mjs";
import { makeLog } from "../dev/log.mjs";
import { oneFile } from "../dev/serve.mjs";
import { browser, clickMark, drawn, settled, watched } from "./page.mjs";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
let chrome;
let folder;
let path;
before(async () => {
  chrome = await browser();
  folder = mkdtempSync(join(tmpdir(), "decklog-ui-file-"));
  path = process.env.DECKLOG_UI_FILE ?? join(folder, "incident.html");
  if (!process.env.DECKLOG_UI_FILE) {
    const built = Object.fromEntries(["index.html", "app.js", "app.css"].map((name) => [name, readFileSync(join(here, "dist", name))]));
    writeFileSync(path, oneFile(built, fileData(new Api(makeLog({ now: Date.now() })), "2h")));
  }
});
after(async () => {
  await chrome?.close();
  rmSync(folder, { recursive: true });
});

test("it opens from disk, offline, and is the same page", async () => {
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
  await context.setOffline(true);
  const { page, asked, clean } = await watched(context, { origin: "file://" });
  await page.goto(pathToFileURL(path).href);
  await drawn(page);
  assert.deepEqual(asked.filter((one) => !one.startsWith("data:")), [pathToFileURL(path).href], "nothing is loaded beside it");
  const mark = await page.evaluate(() => {
    const { answers } = JSON.parse(document.getElementById("decklog-data").textContent);
    const { lanes } = answers;
    const found = lanes.lanes.flatMap((lane) => lane.marks.map((one, index) => ({ ...one, lane: lane.id, before: lane.marks[index - 1]?.seq ?? null })));
    return found.find((one) => one.type === "MODIFIED" && one.areas.includes("spec") && one.before !== null && answers[`entry/${one.seq}`] && answers[`entry/${one.before}`]) ?? null;
  });
  assert.ok(mark, "the file has a change of a spec");
  await page.evaluate((time) => {
    // Marks stand apart, in a log of hours and in one of two seconds.
    const { oldest, head } = JSON.parse(document.getElementById("decklog-data").textContent).answers.overview;
    const [at, reach] = [Date.parse(time), Math.min(600_000, (Date.parse(head.time) - Date.parse(oldest.time)) / 10)];
    location.hash = `since=${new Date(at - reach).toISOString()}&until=${new Date(at + reach).toISOString()}`;
  }, mark.time);
  await settled(page);
  await clickMark(page, mark.seq);
  await page.locator(`[data-entry="${mark.seq}"]`).waitFor();
  await page.locator(".diff .plus").first().waitFor();
  // What was not asked when it was made is refused, with the command that knows it.
  await page.evaluate((hash) => (location.hash = hash), `entry=${mark.before}&against=${mark.seq}`);
  await page.getByText(`--from ${mark.before} --to ${mark.seq}`).first().waitFor();
  await page.evaluate((hash) => (location.hash = hash), "type=DELETED");
  await page.getByText("decklog timeline makes another one").first().waitFor();
  await page.evaluate((hash) => (location.hash = hash), `object=${encodeURIComponent(mark.lane)}&page=object`);
  await page.locator(".object-head").waitFor();
  assert.equal(await page.locator(".live").count(), 0, "nothing to follow");
  for (const one of ["log", "state", "state&from=all", "churn", "health"]) {
    await page.evaluate((hash) => (location.hash = hash), `page=${one}`);
    await page.locator(`.page-${one.split("&")[0]} .list`).waitFor();
    await settled(page);
    assert.equal(await page.locator(".problem").count(), 0, one);
  }
  await clean();
  await context.close();
});
