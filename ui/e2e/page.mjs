// What the browser tests share: a browser, a server, and a page that is watched for what must never happen.
//
//   DECKLOG_UI_URL       the page of a running decklog, with the token that lets one browser in; without it, the made-up log of ui/dev
//   DECKLOG_UI_CLUSTER   the API server that it watches, for the tests that change what is there, with the token in DECKLOG_UI_CLUSTER_TOKEN
//   CHROMIUM             the browser; one of Debian's by default

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { serve } from "../dev/serve.mjs";

export const given = process.env.DECKLOG_UI_URL ?? null;
export const cluster = process.env.DECKLOG_UI_CLUSTER ?? null;

/** What the address with the token gave: every context of the browser has it, and so has `ask`. */
let cookie = null;

const installed = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"].find((path) => existsSync(path));

export async function browser() {
  const chrome = await chromium.launch({ executablePath: process.env.CHROMIUM ?? installed, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
  const make = chrome.newContext.bind(chrome);
  chrome.newContext = async (options) => {
    const context = await make(options);
    if (cookie) await context.addCookies([cookie]);
    return context;
  };
  return chrome;
}

/** The server to test: the one that was named, or one of our own. Its `dev` is null for a real one. */
export async function target(options = {}) {
  if (given !== null) {
    const url = new URL(given);
    const entered = url.searchParams.has("token") ? await fetch(url, { redirect: "manual" }) : null;
    url.search = "";
    if (entered) {
      const set = entered.headers.get("set-cookie");
      assert.ok(set, `the token lets nobody in: ${entered.status} ${await entered.text()}`);
      const [name, value] = set.split(";")[0].split("=");
      cookie = { name, value, url: url.href };
    }
    return { url: url.href, dev: null, async stop() {} };
  }
  const dev = await serve({ dist: true, ...options });
  return { url: dev.url, dev, stop: () => dev.stop() };
}

/** A page that fails the test where something runs, leaves the origin or breaks a policy. */
export async function watched(context, { origin, from = origin }) {
  const page = await context.newPage();
  const faults = [];
  const asked = [];
  await page.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}:${event.lineNumber}`));
  });
  page.on("pageerror", (error) => faults.push(`error: ${error.message}\n${error.stack}`));
  page.on("console", (message) => {
    // The browser logs each answer that is no success, and a refused filter is one on purpose.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) faults.push(`console: ${message.text()}`);
  });
  page.on("dialog", async (dialog) => {
    faults.push(`dialog: ${dialog.message()}`);
    await dialog.dismiss();
  });
  page.on("request", (request) => {
    asked.push(request.url());
    if (!request.url().startsWith(origin) && request.url() !== from && !/^(data|blob):/.test(request.url())) faults.push(`asked another origin: ${request.url()}`);
  });
  return {
    page, asked,
    async clean() {
      faults.push(...(await page.evaluate(() => globalThis.violations)).map((one) => `policy: ${one}`));
      const canary = await page.evaluate(() => globalThis.canary ?? null);
      if (canary !== null) faults.push(`hostile data ran: ${canary}`);
      assert.deepEqual(faults, []);
    },
  };
}

/** The lanes are drawn. */
export async function drawn(page) {
  await page.waitForFunction(() => globalThis.decklog !== undefined && globalThis.decklog.lanes().length > 0 && globalThis.decklog.frames.length > 0);
  await settled(page);
}

/** Nothing is being loaded, and the window rests. */
export async function settled(page) {
  await page.waitForFunction(() => document.querySelector('[aria-busy="true"]') === null && globalThis.decklog?.moving !== true);
  await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
}

/** The keyboard is at an element. */
export async function focused(page, id) {
  await page.waitForFunction((wanted) => document.activeElement.id === wanted, id);
}

/** Clicks the mark of an entry where it is drawn. */
export async function clickMark(page, seq, options = {}) {
  const place = await markPlace(page, seq);
  if (options.shift) await page.keyboard.down("Shift");
  await page.mouse.click(place.x, place.y);
  if (options.shift) await page.keyboard.up("Shift");
}

export async function markPlace(page, seq) {
  let place = await page.evaluate((one) => globalThis.decklog.place(one), seq);
  assert.ok(place, `entry ${seq} has no mark`);
  const box = await page.locator("#lanes").boundingBox();
  if (place.y < box.y + 12 || place.y > box.y + box.height - 12) {
    await page.evaluate(({ y, middle }) => (document.getElementById("lanes").scrollTop += y - middle), { y: place.y, middle: box.y + box.height / 2 });
    await settled(page);
    place = await page.evaluate((one) => globalThis.decklog.place(one), seq);
  }
  return place;
}

export async function ask(url, path) {
  return fetch(`${url}api/v1/${path}`, { headers: cookie ? { cookie: `${cookie.name}=${cookie.value}` } : {} });
}

export async function api(url, path) {
  const response = await ask(url, path);
  assert.equal(response.status, 200, `${path}: ${response.status}`);
  return response.json();
}

/** From the API, so that it works on any log: an object with at least two changes, one of them of its spec. */
export async function rollout(url) {
  const { lanes } = await api(url, "lanes?area=spec&what=deploy&lanes=500&marks=10000");
  const changed = lanes.filter((lane) => lane.kind === "Deployment").flatMap((lane) => lane.marks.filter((mark) => mark.type === "MODIFIED" && mark.areas.includes("spec")).map((mark) => ({ lane, mark })));
  assert.ok(changed.length > 0, "the log has a change of a Deployment's spec");
  // The newest change of an image is the bad one.
  for (const { lane, mark } of changed.sort((a, b) => b.mark.seq - a.mark.seq)) {
    const entry = await api(url, `entry?seq=${mark.seq}`);
    if (/image:/.test(entry.diff) && entry.previous !== null) return { lane, mark, entry };
  }
  throw new Error("the log has no change of an image");
}
