// One decklog over several clusters, which asks for a token. The test of the binary starts it: the clusters `eu` and `us` have an object each
// that is called after them, and the configuration of `typo` is wrong.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import { browser, drawn, given, watched } from "./page.mjs";

const skip = given !== null && process.env.DECKLOG_UI_SEVERAL === "1" ? false : "needs a daemon with several clusters";

let chrome;
// Another site, where somebody has put the address.
const elsewhere = createServer((_, response) => {
  response.setHeader("content-type", "text/html");
  response.end(`<!doctype html><a href="${given}">the log</a>`);
});
before(async () => {
  if (skip) return;
  chrome = await browser();
  await new Promise((resolve) => elsewhere.listen(0, "127.0.0.1", resolve));
});
after(async () => {
  await chrome?.close();
  elsewhere.close();
});

test("a link from elsewhere leads to the clusters, and each page leads to the others", { skip }, async () => {
  const link = `http://localhost:${elsewhere.address().port}/`;
  const { origin } = new URL(given);
  const context = await chrome.newContext({ viewport: { width: 1280, height: 800 } });
  const { page, clean } = await watched(context, { origin, from: link });
  const stranger = await context.newPage();
  await stranger.goto(`${origin}/`);
  await stranger.getByText("show a token").waitFor();
  assert.equal(await stranger.getByText("typo").count(), 0, "who shows no token sees no name");
  await page.goto(link);
  await page.getByRole("link", { name: "the log" }).click();
  await page.getByText("lug").waitFor();
  await page.getByRole("link", { name: "eu", exact: true }).click();
  await drawn(page);
  await page.getByRole("link", { name: "only-eu" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "only-us" }).count(), 0);
  await page.getByRole("button", { name: "6h", exact: true }).click();
  await page.getByLabel("Cluster", { exact: true }).selectOption("us");
  await page.getByRole("link", { name: "only-us" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "only-eu" }).count(), 0);
  assert.match(page.url(), /\/clusters\/us\/#.*since=6h/, "the range stays");
  await clean();
  await context.close();
});
