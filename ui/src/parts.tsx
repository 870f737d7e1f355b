// Small pieces that every page uses.

import { signal, useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Summary } from "./api.ts";
import { counted, cut, fitToPaste, objectName, ofCluster, pieces, plain, rewriteWords, senderWords, whoWords, withoutArea } from "./text.ts";
import { full, parse, zoneName } from "./time.ts";
import { choose, linkTo, senderOf, view, type Failure } from "./store.ts";

/**
 * Text from the cluster: isolated, with what is hidden made visible, and cut with a way to see more. `fixed`: without one, where
 * it stands in something that is itself pressed.
 */
export function Text({ of, max = 300, lines = false, fixed = false }: { of: string; max?: number; lines?: boolean; fixed?: boolean }): JSX.Element {
  const limit = useSignal(max);
  const [shown, rest] = cut(of, limit.value);
  return (
    <bdi class="t">
      {pieces(shown, !lines).map((piece) => (piece.escaped ? <span class="esc">{piece.text}</span> : piece.text))}
      {rest > 0 && fixed && "…"}
      {rest > 0 && !fixed && (
        <>
          {"… "}
          <button type="button" class="more" onClick={() => (limit.value = Math.min(of.length, limit.value * 4 + 20_000))}>
            {counted(rest, "more character")}
          </button>
        </>
      )}
    </bdi>
  );
}

export function Time({ at, fraction = false }: { at: string | number | null | undefined; fraction?: boolean }): JSX.Element {
  if (at === null || at === undefined) return <span class="muted">never</span>;
  const time = typeof at === "number" ? at : parse(at);
  const { zone } = view.value;
  return (
    <time class="num" dateTime={typeof at === "string" ? at : new Date(time).toISOString()} title={`${full(time, zone, true)} ${zoneName(zone, time)}`}>
      {full(time, zone, fraction)}
    </time>
  );
}

/** The name of an object, as a link to its page. */
export function ObjectLink({ of, at }: { of: { id: string; kind: string; namespace: string; name: string }; at?: number }): JSX.Element {
  return (
    <a class="object" href={linkTo({ page: "object", object: of.id, at: at === undefined ? "" : String(at), entry: null, against: null })} title={plain(of.id)}>
      <Text of={objectName(of)} max={90} fixed />
      {of.namespace !== "" && (
        <span class="muted">
          {" "}
          <Text of={of.namespace} max={60} fixed />
        </span>
      )}
    </a>
  );
}

export function TypeWord({ of }: { of: string }): JSX.Element {
  return <span class={`type type-${of}`}>{of}</span>;
}

export function Areas({ of }: { of: readonly string[] }): JSX.Element {
  return (
    <>
      {of.map((area) => (
        <span key={area} class={`area area-${/^[a-z]+$/i.test(area) ? area : "other"}`}>
          <Text of={area} max={40} />
        </span>
      ))}
    </>
  );
}

/** What a line of `decklog tail` says beyond the columns that stand here already. */
export function gist(entry: Summary): string {
  if (entry.gap) return `${entry.gap.why}: changes may be missing`;
  const name = `/${entry.name}`;
  const at = entry.line.indexOf(name);
  const rest = at < 0 ? "" : entry.line.slice(at + name.length).replace(/\s+/g, " ").trim();
  // How it is known has a place of its own, and so have the areas.
  const text = rest.endsWith(entry.evidence) && entry.evidence !== "" ? rest.slice(0, -entry.evidence.length).trim() : rest.replace(/^listed: /, "");
  return withoutArea(text, entry.areas);
}

/** Whose entries a GAP or a storage rewrite is about. */
function rangeName(entry: Summary): string {
  const { resource, namespace } = entry.rewrite ?? entry;
  return [resource || "everything", namespace].filter(Boolean).join(" ");
}

/** Who sent a change, behind it as `decklog log` has it. An ACTOR says it itself. */
function SentBy({ entry }: { entry: Summary }): JSX.Element | null {
  const actor = entry.type === "ACTOR" ? undefined : senderOf(entry);
  return actor ? (
    <span class="sender">
      {" by "}
      <Text of={senderWords(actor)} max={200} />
    </span>
  ) : null;
}

/** One entry in a list: choosing it shows it. */
export function EntryRow({ entry, withObject = true }: { entry: Summary; withObject?: boolean }): JSX.Element {
  const known = view.value;
  const chosen = known.entry === entry.seq || known.against === entry.seq;
  return (
    <tr class={chosen ? "chosen" : entry.quiet ? "quiet" : ""}>
      <td class="num right">
        <button
          type="button"
          class="link seq"
          data-seq={entry.seq}
          aria-pressed={chosen}
          aria-label={plain(`Entry ${entry.seq}, ${entry.type} ${objectName(entry)}`)}
          onClick={(event) => choose(entry.seq, event.shiftKey)}
        >
          {entry.seq}
        </button>
      </td>
      <td>
        <Time at={entry.time} />
      </td>
      <td>
        <TypeWord of={entry.type} />
        {entry.evidence !== "watched" && entry.evidence !== "" && <span class="evidence"> {entry.evidence}</span>}
      </td>
      {withObject && <td>{entry.type === "GAP" || entry.rewrite ? <Text of={rangeName(entry)} max={90} /> : <ObjectLink of={entry} />}</td>}
      <td>
        <Areas of={entry.areas.filter((area) => area !== "managedFields")} />
      </td>
      <td class="wide">
        {entry.rewrite ? (
          <>
            <Text of={rewriteWords(entry.rewrite)} max={160} /> since <Time at={entry.rewrite.since} />
          </>
        ) : gist(entry) !== "" ? <Text of={gist(entry)} max={160} /> : <Text of={whoWords(entry)} max={160} />}
        <SentBy entry={entry} />
      </td>
    </tr>
  );
}

export function EntryTable({ entries, caption, withObject = true }: { entries: readonly Summary[]; caption: string; withObject?: boolean }): JSX.Element {
  return (
    <div class="scroll-x">
      <table class="grid entries">
        <caption class="sr">{caption}</caption>
        <thead>
          <tr>
            <th scope="col" class="right">Entry</th>
            <th scope="col">Time</th>
            <th scope="col">Type</th>
            {withObject && <th scope="col">Object</th>}
            <th scope="col">Changed</th>
            <th scope="col">What and who</th>
          </tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <EntryRow key={entry.seq} entry={entry} withObject={withObject} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** A few entries in little room: two lines each. */
export function EntryList({ entries, label }: { entries: readonly Summary[]; label: string }): JSX.Element {
  const known = view.value;
  return (
    <ul class="entry-list" aria-label={label}>
      {entries.map((entry) => (
        <li key={entry.seq} class={known.entry === entry.seq ? "chosen" : ""}>
          <div>
            <button type="button" class="link seq num" data-seq={entry.seq} aria-label={plain(`Entry ${entry.seq}, ${entry.type} ${objectName(entry)}`)} onClick={(event) => choose(entry.seq, event.shiftKey)}>
              {entry.seq}
            </button>
            <Time at={entry.time} />
            <TypeWord of={entry.type} />
            {entry.type === "GAP" ? <Text of={entry.resource || "everything"} max={60} /> : <ObjectLink of={entry} />}
          </div>
          <div class="muted">
            {entry.evidence !== "watched" && entry.evidence !== "" && <span class="evidence">{entry.evidence} </span>}
            {gist(entry) !== "" ? <Text of={gist(entry)} max={140} /> : <Areas of={entry.areas.filter((area) => area !== "managedFields")} />}
            <SentBy entry={entry} />
          </div>
        </li>
      ))}
    </ul>
  );
}

/** How wide an element is, also when that changes. */
export function useWidth(box: RefObject<HTMLElement | null>): Signal<number> {
  const width = useSignal(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const watch = new ResizeObserver(() => (width.value = element.clientWidth));
    watch.observe(element);
    width.value = element.clientWidth;
    return () => watch.disconnect();
  }, []);
  return width;
}

/** A difference as `decklog log -p` prints it: what went with `-`, what came with `+`, in the first column that has such signs. */
export function Diff({ text, cut: isCut = false, whole = "decklog log -p" }: { text: string; cut?: boolean | undefined; whole?: string }): JSX.Element {
  const most = useSignal(600);
  const lines = text.replace(/\n$/, "").split("\n");
  const column = lines.some((line) => /^[-+~?] /.test(line)) ? 0 : 2;
  return (
    <>
      <div class="code diff" tabIndex={0} role="region" aria-label="Difference">
        {lines.slice(0, most.value).map((line, index) => {
          const sign = line[column] ?? " ";
          const kind = /^\s*$/.test(line.slice(0, column)) && "+-~?".includes(sign) && (line[column + 1] ?? " ") === " " ? sign : " ";
          const name = kind === "+" ? "plus" : kind === "-" ? "minus" : kind === " " ? "same" : "note";
          return (
            <div key={index} class={name}>
              <Text of={line.slice(column)} max={600} lines />
            </div>
          );
        })}
      </div>
      {lines.length > most.value && (
        <button type="button" onClick={() => (most.value = most.value * 4)}>
          Show more of {counted(lines.length - most.value, "line")}
        </button>
      )}
      {isCut && <p class="muted">It is longer: {whole} prints all of it.</p>}
    </>
  );
}

export function Yaml({ text, isCut, label }: { text: string; isCut: boolean; label: string }): JSX.Element {
  const most = useSignal(400);
  const lines = text.replace(/\n$/, "").split("\n");
  return (
    <>
      <div class="code" tabIndex={0} role="region" aria-label={label}>
        {lines.slice(0, most.value).map((line, index) => (
          <div key={index}>
            <Text of={line} max={600} lines />
          </div>
        ))}
      </div>
      {lines.length > most.value && (
        <button type="button" onClick={() => (most.value = most.value * 4)}>
          Show more of {counted(lines.length - most.value, "line")}
        </button>
      )}
      {isCut && <p class="muted">The object is longer: decklog get prints all of it, with --at and the number of the entry.</p>}
    </>
  );
}

export const copied = signal("");

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No secure context, as with plain HTTP to another machine: the old way.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "sr";
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

export function Command({ text: command }: { text: string }): JSX.Element {
  const text = location.protocol === "file:" ? command : ofCluster(command, location.pathname);
  const fit = fitToPaste(text);
  const done = copied.value === text;
  return (
    <div class="command">
      <code>
        <Text of={text} max={400} />
      </code>
      <button
        type="button"
        class="copy"
        disabled={!fit}
        title={fit ? "" : "It has characters that a shell must not get unseen"}
        onClick={async () => {
          copied.value = (await copy(text)) ? text : "";
        }}
      >
        {done ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

/** What went wrong; where it was not the question, with a way to ask again. */
export function Problem({ of, retry }: { of: Failure; retry: () => void }): JSX.Element {
  return (
    <div class={`problem${of.message.includes("\n") ? " mono" : ""}`} role="alert">
      <p>
        <Text of={of.message} max={2000} lines />
      </p>
      {of.outage && (
        <button type="button" onClick={retry}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** Calls `load` for each new key, and aborts what the last one began. */
export function useLoad(key: string, load: (signal: AbortSignal) => Promise<void>): void {
  const latest = useRef(load);
  latest.current = load;
  useEffect(() => {
    const abort = new AbortController();
    void latest.current(abort.signal);
    return () => abort.abort();
  }, [key]);
}
