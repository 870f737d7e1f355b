// A server for developing the page, and for its tests until a real decklog is at hand: `/api/v1` over a made-up log.
//
//   node dev/serve.mjs [--big] [--live] [--port 9467]     --live: something happens every two seconds
//
// It builds ui/src again whenever the page is loaded. `POST /dev/append` and `POST /dev/cut` are for tests: a new entry, and all
// streams ended.

import { createServer } from "node:http";
import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";
import { context } from "esbuild";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Api, filters, summary, Wrong } from "./api.mjs";
import { append, makeLog } from "./log.mjs";

const here = dirname(dirname(fileURLToPath(import.meta.url)));
export const CSP =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/** The page with its data in it. */
export function oneFile(built, data) {
  const script = built["app.js"].toString("utf8");
  const style = built["app.css"].toString("utf8");
  const hash = (text) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`;
  const policy = `default-src 'none'; script-src ${hash(script)}; style-src ${hash(style)}; img-src data:; base-uri 'none'; form-action 'none'`;
  // Functions as replacements: a text would have its `$` read.
  return built["index.html"]
    .toString("utf8")
    .replace('<meta charset="utf-8">', () => `<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="${policy}">`)
    .replace('<link rel="stylesheet" href="app.css">', () => `<style>${style}</style>`)
    .replace(
      '<script src="app.js" defer></script>',
      () => `<script type="application/json" id="decklog-data">${JSON.stringify(data).replaceAll("<", "\\u003c")}</script>\n<script>${script}</script>`,
    );
}

export async function serve({ port = 0, big = false, live = false, dist = false } = {}) {
  const log = makeLog({ now: Math.floor(Date.now() / 1000) * 1000, big });
  const api = new Api(log);
  const streams = new Set();
  const asked = [];
  const bundle = dist
    ? null
    : await context({
        absWorkingDir: here, entryPoints: ["src/main.tsx", "src/app.css"], outdir: "out", bundle: true, write: false, format: "iife", jsx: "automatic", jsxImportSource: "preact",
        logLevel: "warning", sourcemap: "inline",
      });
  const page = async (name) => {
    if (dist) return readFileSync(join(here, "dist", name));
    if (name === "index.html") return readFileSync(join(here, "src/index.html"));
    const made = await bundle.rebuild();
    return Buffer.from(made.outputFiles.find((file) => file.path.endsWith(name === "app.js" ? "main.js" : name)).contents);
  };

  const tell = (entry) => {
    for (const stream of streams) {
      if (stream.passes.entry(entry) && (stream.passes.quiet || !entry.quiet)) stream.response.write(`id: ${log.epoch}:${entry.seq}\nevent: entry\ndata: ${JSON.stringify(summary(entry))}\n\n`);
      else stream.response.write(`event: at\ndata: {"cursor":"${log.epoch}:${entry.seq}"}\n\n`);
    }
  };
  const happen = (event) => tell(append(log, { time: Date.now(), ...event }));

  const server = createServer(async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    const headers = { "content-security-policy": CSP, "x-content-type-options": "nosniff", "cache-control": "no-store" };
    try {
      if (request.method === "POST" && url.pathname.startsWith("/dev/")) {
        let body = "";
        for await (const part of request) body += part;
        if (url.pathname === "/dev/append") happen(JSON.parse(body));
        if (url.pathname === "/dev/cut") for (const stream of streams) stream.response.destroy();
        if (url.pathname === "/dev/reload") {
          for (const stream of streams) stream.response.write(`event: reload\ndata: {"why":"behind"}\n\n`);
        }
        response.writeHead(204).end();
        return;
      }
      const names = { "/": ["index.html", "text/html; charset=utf-8"], "/app.js": ["app.js", "text/javascript; charset=utf-8"], "/app.css": ["app.css", "text/css; charset=utf-8"] };
      const file = names[url.pathname];
      if (file) {
        response.writeHead(200, { ...headers, "content-type": file[1] }).end(await page(file[0]));
        return;
      }
      const name = url.pathname.replace("/api/v1/", "");
      asked.push(`${name}${url.search}`);
      if (name === "follow") {
        const cursor = request.headers["last-event-id"] ?? url.searchParams.get("after") ?? api.cursor();
        const [epoch, seq] = cursor.split(":");
        response.writeHead(200, { ...headers, "content-type": "text/event-stream" });
        response.write(": follows\n\n");
        if (epoch !== log.epoch) response.write(`event: reload\ndata: {"why":"epoch"}\n\n`);
        const stream = { response, passes: filters(url.searchParams) };
        for (const entry of log.entries.slice(Number(seq))) {
          if (stream.passes.entry(entry) && (stream.passes.quiet || !entry.quiet)) response.write(`id: ${log.epoch}:${entry.seq}\nevent: entry\ndata: ${JSON.stringify(summary(entry))}\n\n`);
        }
        streams.add(stream);
        response.on("close", () => streams.delete(stream));
        return;
      }
      if (!["overview", "histogram", "lanes", "entries", "entry", "diff", "object", "state", "changes", "clusters", "churn"].includes(name)) throw new Wrong("there is nothing here", null, 404);
      const answer = JSON.stringify(api[name](url.searchParams));
      response.writeHead(200, { ...headers, "content-type": "application/json" }).end(answer);
    } catch (error) {
      if (response.headersSent) return response.destroy();
      const status = error instanceof Wrong ? error.status : 500;
      response.writeHead(status, { ...headers, "content-type": "application/json" }).end(JSON.stringify({ error: error.message, ...(error.key ? { key: error.key } : {}) }));
    }
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  let turn = 0;
  const timer = live
    ? setInterval(() => {
        turn += 1;
        if (turn % 5 === 0) happen({ type: "ADDED", kind: "Pod", namespace: "shop", name: `job-${turn}`, set: { spec: { nodeName: "n1" } }, managers: ["kube-controller-manager"] });
        else happen({ type: "MODIFIED", kind: "Deployment", namespace: "shop", name: "web", path: "/status/observed", value: turn, managers: ["kube-controller-manager"] });
      }, 2000)
    : null;
  return {
    url: `http://127.0.0.1:${server.address().port}/`, api, asked, happen,
    async stop() {
      if (timer) clearInterval(timer);
      for (const stream of streams) stream.response.destroy();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await bundle?.dispose();
    },
  };
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const value = process.argv.indexOf("--port");
  const running = await serve({ port: value < 0 ? 9467 : Number(process.argv[value + 1]), big: process.argv.includes("--big"), live: process.argv.includes("--live") });
  console.log(running.url);
}
