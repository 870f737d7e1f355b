// Builds ui/dist from ui/src: three files without hashes in their names, the same bytes on every machine.
// `--check` compares them with what is committed, and changes nothing.

import { build } from "esbuild";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const LIMIT = 150 * 1024;

/** The files, by name, as bytes. */
export async function files() {
  const common = { bundle: true, minify: true, legalComments: "none", charset: "ascii", write: false, logLevel: "warning", absWorkingDir: here };
  const script = await build({
    ...common, entryPoints: ["src/main.tsx"], format: "iife", target: ["chrome109", "firefox115", "safari16"], jsx: "automatic", jsxImportSource: "preact",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  const style = await build({ ...common, entryPoints: ["src/app.css"], target: ["chrome109", "firefox115", "safari16"] });
  return {
    "index.html": readFileSync(join(here, "src/index.html")),
    "app.js": Buffer.from(script.outputFiles[0].contents),
    "app.css": Buffer.from(style.outputFiles[0].contents),
  };
}

/** What is wrong with the files, no matter who built them. */
export function faults(built) {
  const found = [];
  let packed = 0;
  for (const [name, bytes] of Object.entries(built)) {
    const text = bytes.toString("utf8");
    packed += gzipSync(bytes, { level: 9 }).length;
    // Nothing is loaded from elsewhere: no address but the names of XML namespaces.
    for (const match of text.matchAll(/(?:https?:)?\/\/[a-z0-9.-]+\.[a-z]{2,}[^\s"'`)]*/gi)) {
      if (!/^http:\/\/www\.w3\.org\//.test(match[0])) found.push(`${name} names another host: ${match[0]}`);
    }
    if (/\beval\(|new Function\(/.test(text)) found.push(`${name} makes code of text`);
  }
  const html = built["index.html"].toString("utf8");
  if (/\sstyle=|\son[a-z]+=|<style|<script(?![^>]*\bsrc=)/i.test(html)) found.push("index.html has something inline, which its policy forbids");
  // The one-file form puts both into elements of a page.
  if (/<\/script/i.test(built["app.js"].toString("utf8"))) found.push("app.js ends the element that it is put into");
  if (/<\/style/i.test(built["app.css"].toString("utf8"))) found.push("app.css ends the element that it is put into");
  if (packed > LIMIT) found.push(`all files have ${packed} bytes packed, and may have ${LIMIT}`);
  return { found, packed };
}

const built = await files();
const { found, packed } = faults(built);
const dist = join(here, "dist");
if (process.argv.includes("--check")) {
  for (const [name, bytes] of Object.entries(built)) {
    let committed = null;
    try {
      committed = readFileSync(join(dist, name));
    } catch {
      // Said below.
    }
    if (committed === null || !committed.equals(bytes)) found.push(`ui/dist/${name} is not what ui/src makes: run ui/build and commit it`);
  }
} else {
  mkdirSync(dist, { recursive: true });
  for (const [name, bytes] of Object.entries(built)) writeFileSync(join(dist, name), bytes);
}
for (const [name, bytes] of Object.entries(built)) console.log(`${name.padEnd(10)} ${String(bytes.length).padStart(7)} bytes, ${gzipSync(bytes, { level: 9 }).length} packed`);
console.log(`together   ${packed} bytes packed`);
for (const fault of found) console.error(fault);
process.exitCode = found.length > 0 ? 1 : 0;
