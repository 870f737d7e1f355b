// How fast the page is with 10,000 marks: of the made-up log, or of the decklog at DECKLOG_UI_URL. It prints, and judges nothing: a
// machine that does other things beside this one is slow without a fault of the page.

import { browser, drawn, given, settled, target } from "./page.mjs";

const quantile = (numbers, share) => [...numbers].sort((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))] ?? 0;

async function measure(chrome, server) {
  const range = given === null ? "#since=1h" : "#";
  const firsts = [];
  let page;
  for (let turn = 0; turn < 5; turn += 1) {
    await page?.context().close();
    const context = await chrome.newContext({ viewport: { width: 1600, height: 1000 } });
    page = await context.newPage();
    await page.goto(`${server.url}${range}`);
    await drawn(page);
    firsts.push(await page.evaluate(() => {
      const at = (name) => performance.getEntriesByName(name)[0].startTime;
      const answered = performance.getEntriesByType("resource").find((one) => one.name.includes("/lanes?")).responseEnd;
      return { picture: at("decklog-painted") - answered, all: at("decklog-painted") };
    }));
  }
  const marks = await page.evaluate(() => globalThis.decklog.lanes().reduce((sum, lane) => sum + lane.marks, 0));
  const box = await page.locator("#lanes").boundingBox();
  const run = async (name, act) => {
    await page.evaluate(() => {
      globalThis.decklog.frames.length = 0;
      globalThis.gaps = [];
      globalThis.running = true;
      let last = performance.now();
      const tick = (now) => {
        globalThis.gaps.push(now - last);
        last = now;
        if (globalThis.running) requestAnimationFrame(tick);
      };
      requestAnimationFrame(tick);
    });
    await act();
    const { gaps, frames } = await page.evaluate(() => {
      globalThis.running = false;
      return { gaps: globalThis.gaps.slice(2), frames: [...globalThis.decklog.frames] };
    });
    const mean = gaps.reduce((sum, one) => sum + one, 0) / gaps.length;
    console.log(
      `${name}: ${(1000 / mean).toFixed(0)} frames per second, frame ${quantile(gaps, 0.5).toFixed(1)} ms median, ${quantile(gaps, 0.95).toFixed(1)} ms at 95 %; ` +
        `drawing ${quantile(frames, 0.5).toFixed(2)} ms median, ${quantile(frames, 0.95).toFixed(2)} ms at 95 %, ${frames.length} pictures`,
    );
  };
  console.log(`${marks} marks; from the answer to the picture ${firsts.map((one) => one.picture.toFixed(0)).join(", ")} ms; from the address to the picture ${firsts.map((one) => one.all.toFixed(0)).join(", ")} ms`);
  const [x, y] = [box.x + box.width * 0.7, box.y + box.height / 2];
  await run("panning", async () => {
    await page.mouse.move(x, y);
    await page.mouse.down();
    for (let step = 0; step < 90; step += 1) await page.mouse.move(x - step * 4, y);
    await page.mouse.up();
  });
  await settled(page);
  await run("zooming", async () => {
    await page.keyboard.down("Control");
    for (let step = 0; step < 60; step += 1) await page.mouse.wheel(0, step < 30 ? -40 : 40);
    await page.keyboard.up("Control");
  });
  await settled(page);
  await run("scrolling", async () => {
    for (let step = 0; step < 40; step += 1) await page.mouse.wheel(0, 120);
    await settled(page);
  });
}

const chrome = await browser();
const server = await target({ big: true });
try {
  await measure(chrome, server);
} finally {
  await chrome.close();
  await server.stop();
}
