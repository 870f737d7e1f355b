// Text that came out of a cluster. Anybody who may write an annotation writes here, so nothing of it is ever markup, and
// nothing of it may look like something else: characters that do not show, or that turn the direction of what stands around
// them, are shown by their names.

import type { Actor } from "./api.ts";

export interface Piece {
  text: string;
  /** The text is the name of a character that does not show itself. */
  escaped: boolean;
}

const HIDDEN = new RegExp(
  "[" +
    "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f" + // control characters, but for tab and line feed
    "\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180e" + // characters without a shape
    "\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u206f" + // zero width, line and paragraph separators, bidi controls
    "\\u3164\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb" +
    "\\u{e0000}-\\u{e0fff}" + // tags and variation selectors
    "\\ud800-\\udfff" + // halves of a pair: with the flag u, a whole pair is not among them
    "]",
  "gu",
);

/** The pieces of a text, in order. `oneLine` names tabs and line feeds, too. */
export function pieces(text: string, oneLine: boolean): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  const add = (piece: string, escaped: boolean): void => {
    const last = found[found.length - 1];
    if (last && last.escaped === escaped) last.text += piece;
    else found.push({ text: piece, escaped });
  };
  const plain = (part: string): void => {
    if (!oneLine) return add(part, false);
    for (const [index, line] of part.split(/([\n\t])/).entries()) {
      if (line !== "") add(index % 2 === 1 ? (line === "\n" ? "\\n" : "\\t") : line, index % 2 === 1);
    }
  };
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) plain(text.slice(from, match.index));
    add(escape(match[0]), true);
    from = match.index + match[0].length;
  }
  if (from < text.length) plain(text.slice(from));
  return found;
}

function escape(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** One line that may stand where no markup can: a title, a label for screen readers, a canvas. */
export function plain(text: string, max = 200): string {
  const [shown, rest] = cut(text, max);
  const line = pieces(shown, true).map((piece) => piece.text).join("");
  return rest > 0 ? `${line}…` : line;
}

/** The first `max` characters, and how many are left out. Never ends in the middle of a surrogate pair. */
export function cut(text: string, max: number): [string, number] {
  if (text.length <= max) return [text, 0];
  const code = text.charCodeAt(max - 1);
  const end = code >= 0xd800 && code <= 0xdbff ? max - 1 : max;
  return [text.slice(0, end), text.length - end];
}

/** A name in two parts, of which the first may be shortened: what tells Pods of one owner apart stands at the end of their names. */
export function halves(name: string): [string, string] {
  const at = name.length - Math.min(8, Math.floor(name.length / 2));
  const code = name.charCodeAt(at);
  const end = code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
  return [name.slice(0, end), name.slice(end)];
}

/** What changed, without the area that stands beside it already: `spec replicas 3 → 5`, `data.a 1 → 2` and `spec spec.mode a → b` name theirs. */
export function withoutArea(text: string, areas: readonly string[]): string {
  const word = areas.find((one) => text === one || text.startsWith(`${one} `));
  const rest = word === undefined ? text : text.slice(word.length).trim();
  const path = areas.find((one) => rest.startsWith(`${one}.`));
  return path === undefined ? rest : rest.slice(path.length + 1);
}

/** Whether a text may go into a shell as it is: a command with a line feed or a hidden character is not what it looks like. */
export function fitToPaste(command: string): boolean {
  return pieces(command, true).every((piece) => !piece.escaped);
}

/** 12345 as 12,345: the same everywhere, so that two people who share a page see the same. */
export function count(number: number): string {
  return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function counted(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

const SHORT: Record<string, string> = {
  ConfigMap: "cm", CronJob: "cj", CustomResourceDefinition: "crd", DaemonSet: "ds", Deployment: "deploy", HorizontalPodAutoscaler: "hpa",
  Ingress: "ing", Namespace: "ns", NetworkPolicy: "netpol", Node: "node", PersistentVolume: "pv", PersistentVolumeClaim: "pvc",
  PodDisruptionBudget: "pdb", ReplicaSet: "rs", Service: "svc", ServiceAccount: "sa", StatefulSet: "sts", StorageClass: "sc",
};

/** The word that kubectl and `decklog tail` use for a kind. */
export function short(kind: string): string {
  return SHORT[kind] ?? kind.toLowerCase();
}

const WHY: Record<string, string> = { not_yet: "not listed yet", removed: "not configured any more", stopped: "no daemon was running" };

/** Why nobody knows, in words; of a GAP its own. */
export function whyWords(why: string): string {
  return WHY[why] ?? why;
}

/** Who wrote, or in brackets why nobody is named. */
export function whoWords(one: { managers: readonly string[]; unnamed?: string }): string {
  return one.managers.length > 0 ? one.managers.join(", ") : one.unnamed === undefined ? "" : `(${one.unnamed})`;
}

/** Who sent a change, as `decklog log` says it: `alice (kubectl/v1.36.0, 10.0.0.7, audit: exact)`. */
export function senderWords(of: Actor): string {
  const by = of.impersonated_by ? `impersonated by ${of.impersonated_by}` : "";
  // What stands before the last address is what the client says.
  const [said, connected] = [of.addresses?.[0] ?? "", of.addresses?.at(-1) ?? ""];
  const from = said === connected ? said : `${said} through ${connected}`;
  const parts = [by, of.agent?.split(" ")[0] ?? "", from, `audit: ${of.certainty}`, of.certainty === "doubtful" ? "events of that time are missing" : ""];
  return `${of.user} (${parts.filter(Boolean).join(", ")})`;
}

export function objectName(object: { kind: string; name: string }): string {
  return `${short(object.kind)}/${object.name}`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = size / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(1)} ${units[unit]}`;
}

/** A word as a shell reads it. */
export function quoted(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A command of the page of one of several clusters, which is below `/clusters/NAME/`, says which. */
export function ofCluster(command: string, path: string): string {
  const name = /^\/clusters\/([^/]+)\//.exec(path)?.[1];
  return name === undefined ? command : command.replace(/^decklog /, () => `decklog --cluster ${quoted(decodeURIComponent(name))} `);
}

/** What a storage rewrite was, but for its time. */
export function rewriteWords(of: { objects: number; by?: string }): string {
  return `storage rewrite of ${counted(of.objects, "object", "objects")}${of.by ? ` by ${of.by}` : ""}`;
}
