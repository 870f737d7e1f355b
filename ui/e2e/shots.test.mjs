// How the page looks, against the pictures in docs/timeline. They are of a file with the story of the book in it, which is the same
// on every machine.
//
//   DECKLOG_UI_SHOTS_OF         the file
//   DECKLOG_UI_SHOTS=write      makes the pictures anew; look at them before they are committed

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { browser, drawn, settled, watched } from "./page.mjs";

const file = process.env.DECKLOG_UI_SHOTS_OF;
const folder = join(dirname(dirname(dirname(fileURLToPath(import.meta.url)))), "docs/timeline");
const writes = process.env.DECKLOG_UI_SHOTS === "write";
// So many cells may differ, each by more than a tenth: letters are drawn a little differently on other machines.
const CELL = 16;
const MOST = 0.02;

let chrome;
before(async () => {
  if (file) chrome = await browser();
});
after(async () => {
  await chrome?.close();
});

/** Which part of the cells of two pictures differs. */
async function difference(page, one, other) {
  return page.evaluate(
    async ({ pictures, cell }) => {
      const small = await Promise.all(
        pictures.map(async (png) => {
          const image = await createImageBitmap(new Blob([Uint8Array.from(atob(png), (letter) => letter.charCodeAt(0))], { type: "image/png" }));
          const canvas = new OffscreenCanvas(Math.ceil(image.width / cell), Math.ceil(image.height / cell));
          const context = canvas.getContext("2d");
          context.imageSmoothingQuality = "high";
          context.drawImage(image, 0, 0, canvas.width, canvas.height);
          return { width: image.width, height: image.height, data: context.getImageData(0, 0, canvas.width, canvas.height).data };
        }),
      );
      const [a, b] = small;
      if (a.width !== b.width || a.height !== b.height) return 1;
      let differ = 0;
      for (let at = 0; at < a.data.length; at += 4) {
        if ([0, 1, 2].some((colour) => Math.abs(a.data[at + colour] - b.data[at + colour]) > 25)) differ += 1;
      }
      return differ / (a.data.length / 4);
    },
    { pictures: [one, other].map((png) => png.toString("base64")), cell: CELL },
  );
}

for (const [width, height] of [[360, 740], [1280, 800], [1920, 1080]]) {
  for (const colorScheme of ["light", "dark"]) {
    test(`${width} pixels, ${colorScheme}`, { skip: file ? false : "needs the story in a file" }, async () => {
      const context = await chrome.newContext({ viewport: { width, height }, colorScheme, timezoneId: "UTC", locale: "en-GB", reducedMotion: "reduce" });
      const { page, clean } = await watched(context, { origin: "file://" });
      await page.clock.setFixedTime(new Date("2026-11-20T12:00:00Z"));
      await page.goto(pathToFileURL(file).href);
      await drawn(page);
      const seq = await page.evaluate(() => {
        const { lanes } = JSON.parse(document.getElementById("decklog-data").textContent).answers.lanes;
        const web = lanes.find((lane) => lane.id === "deployments.apps/shop/web");
        return web.marks.find((mark) => mark.type === "MODIFIED" && mark.areas.includes("spec")).seq;
      });
      if (width > 1000) {
        await page.evaluate((entry) => (location.hash = `entry=${entry}`), seq);
        await page.locator(`[data-entry="${seq}"]`).waitFor();
      }
      await settled(page);
      const shot = await page.screenshot();
      const path = join(folder, `${width}-${colorScheme}.png`);
      if (writes) {
        mkdirSync(folder, { recursive: true });
        writeFileSync(path, shot);
      }
      const differs = await difference(page, readFileSync(path), shot);
      assert.ok(differs <= MOST, `${(differs * 100).toFixed(1)} % of the picture differ from ${path}; DECKLOG_UI_SHOTS=write makes it anew`);
      await clean();
      await context.close();
    });
  }
}
