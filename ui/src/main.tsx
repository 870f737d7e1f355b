import type { Signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { render } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Churn } from "./churn.tsx";
import { Panel, truncatedText } from "./entry.tsx";
import { FilterBar, Legend, RangeBar } from "./filters.tsx";
import { Health, worst } from "./health.tsx";
import { KEYS, listen } from "./keys.ts";
import { isChange } from "./layout.ts";
import { Lanes, toLanes } from "./lanes.tsx";
import { LogPage } from "./log.tsx";
import { ObjectPage } from "./object.tsx";
import { Text } from "./parts.tsx";
import { StatePage } from "./state.tsx";
import { choosing, clusters, data, go, helpOpen, linkTo, loaded, loading, narrow, now, overview, overviewFailure, phone, picking, range, said, start, theme, view } from "./store.ts";
import { Strip } from "./strip.tsx";
import { count, counted, plain } from "./text.ts";
import { zoneName } from "./time.ts";
import type { Page } from "./url.ts";

const NAV: [Page, string][] = [["timeline", "Timeline"], ["log", "Log"], ["state", "As of"], ["churn", "Churn"], ["health", "Health"]];

function Header(): JSX.Element {
  const { page, zone } = view.value;
  const known = overview.value;
  const state = worst(known);
  return (
    <header class="top" inert={phone.value && view.value.entry !== null}>
      {/* The part behind the # is the view: the link moves the focus and not the address. */}
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          toLanes();
        }}
      >
        {page === "timeline" ? "To the lanes" : "To the page"}
      </a>
      <a class="brand" href={linkTo({ page: "timeline" })}>
        decklog
      </a>
      {known && <ClusterName name={known.cluster.name} uid={known.cluster.uid} />}
      <nav aria-label="Pages">
        {(choosing.value ? [] : NAV).map(([to, name]) => (
          <a key={to} href={linkTo({ page: to, against: null })} aria-current={page === to ? "page" : undefined}>
            {name}
            {to === "health" && known && <span class={`light light-${state}`} title={state} />}
            {to === "health" && known && known.alarms.length > 0 && <span class="badge">{known.alarms.length}</span>}
          </a>
        ))}
      </nav>
      <div class="tools">
        <button type="button" title="UTC or local time (u)" onClick={() => go({ zone: zone === "utc" ? "local" : "utc" }, false)}>
          {zoneName(zone, Math.min(now.value, range.value.to))}
        </button>
        <button
          type="button"
          title="Dark, light, or as the system has it (t)"
          onClick={() => (theme.value = theme.value === "auto" ? "dark" : theme.value === "dark" ? "light" : "auto")}
        >
          {theme.value === "auto" ? "Auto" : theme.value === "dark" ? "Dark" : "Light"}
        </button>
        <button type="button" title="All keys (?)" aria-label="All keys" onClick={() => (helpOpen.value = true)}>
          ?
        </button>
      </div>
    </header>
  );
}

/** What the page is of; and where decklog has several clusters, the way to the others, with the same range and filters. */
function ClusterName({ name, uid }: { name: string; uid: string }): JSX.Element {
  const known = clusters.value;
  if (!known || known.this === null || known.clusters.length < 2) {
    return (
      <span class="cluster" title={`cluster ${uid}`}>
        <Text of={name} max={60} />
      </span>
    );
  }
  return (
    <select
      class="cluster" aria-label="Cluster" title={`cluster ${uid}`} value={known.this}
      onChange={(event) => location.assign(`${pageOf(event.currentTarget.value, "../")}${linkTo({ entry: null, against: null, object: "", at: "", from: "", folded: [], ...(view.peek().page === "object" ? { page: "timeline" } : {}) })}`)}
    >
      {known.clusters.map((one) => (
        <option key={one.name} value={one.name}>
          {plain(one.name)}
        </option>
      ))}
    </select>
  );
}

/** Relative, so that it leads there through a proxy as well. */
function pageOf(cluster: string, from: string): string {
  return `${from}${encodeURIComponent(cluster)}/`;
}

function ClusterList(): JSX.Element {
  return (
    <section class="list" aria-label="Clusters">
      <h2 class="pad">Clusters</h2>
      <ul class="clusters">
        {clusters.value?.clusters.map((one) => (
          <li key={one.name}>
            <a href={pageOf(one.name, "clusters/")}>
              <Text of={one.name} max={100} />
            </a>
            {one.trouble !== null ? (
              <span class="cut">
                <Text of={one.trouble} max={600} />
              </span>
            ) : (
              !one.running && <span class="evidence">not running</span>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Help(): JSX.Element | null {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = helpOpen.value;
  // Before anything else is focused: closing gives the focus back to where it was.
  useLayoutEffect(() => {
    if (open && dialog.current && !dialog.current.open) dialog.current.showModal();
    if (!open && dialog.current?.open) dialog.current.close();
  }, [open]);
  return (
    <dialog ref={dialog} class="help" aria-labelledby="help-title" onClose={() => (helpOpen.value = false)}>
      <h2 id="help-title">Keys</h2>
      <table>
        <tbody>
          {KEYS.map(([key, what]) => (
            <tr key={key}>
              <th scope="row">
                <kbd>{key}</kbd>
              </th>
              <td>{what}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="muted">Drag moves the window, Ctrl and the wheel zoom, Shift and the wheel move. Shift and a click compare two changes.</p>
      <button type="button" onClick={() => (helpOpen.value = false)}>
        Close
      </button>
    </dialog>
  );
}

function Status(): JSX.Element {
  const known = overview.value;
  const lanes = loaded.value;
  const cut = lanes?.answer.truncated;
  const marks = lanes?.answer.lanes.reduce((sum, lane) => sum + lane.marks.filter(isChange).length, 0) ?? 0;
  const quiet = lanes?.answer.lanes.reduce((sum, lane) => sum + lane.quiet, 0) ?? 0;
  return (
    <footer class="status" aria-label="What is shown">
      <span class="num">
        {lanes ? `${counted(marks, "change")} of ${counted(lanes.answer.lanes.length, "object")}` : ""}
        {quiet > 0 && !view.value.filters.quiet && `, ${count(quiet)} quiet ones folded`}
      </span>
      {cut && <strong class="cut">{truncatedText(cut)}</strong>}
      {data.leftOut !== null && (
        <strong class="cut">
          <Text of={data.leftOut} max={300} />
        </strong>
      )}
      {picking.value && <strong>Choose the other change</strong>}
      <span class="grow" />
      {loading.value && <span class="muted">Loading</span>}
      <span class="muted num">
        {known && (known.head ? `entry ${count(known.head.seq)}` : "the log is empty")}
        {known && ` · decklog ${known.version}`}
      </span>
    </footer>
  );
}

/** What the panel covers where there is little room; nothing of it is reached by Tab then. On a phone it covers all. */
function Beside({ of, children }: { of: Signal<boolean>; children: ComponentChildren }): JSX.Element {
  return (
    <div class="beside" inert={of.value && view.value.entry !== null}>
      {children}
    </div>
  );
}

function Timed({ children }: { children: ComponentChildren }): JSX.Element {
  return (
    <div class={`stage${view.value.entry !== null ? " with-panel" : ""}`}>
      <Beside of={narrow}>{children}</Beside>
      <Panel />
    </div>
  );
}

/** What chooses the entries that are shown, above them. */
function Choice(): JSX.Element {
  return (
    <Beside of={phone}>
      <div class="controls">
        <RangeBar />
        <FilterBar />
      </div>
      <Strip />
      <Legend />
    </Beside>
  );
}

function Body(): JSX.Element {
  if (choosing.value) return <ClusterList />;
  switch (view.value.page) {
    case "timeline":
      return (
        <>
          <Choice />
          <Timed>
            <Lanes />
          </Timed>
          <Status />
        </>
      );
    case "log":
      return (
        <>
          <Choice />
          <Timed>
            <LogPage />
          </Timed>
        </>
      );
    case "object":
      return (
        <Timed>
          <ObjectPage />
        </Timed>
      );
    case "state":
      return (
        <Timed>
          <StatePage />
        </Timed>
      );
    case "churn":
      return (
        <Timed>
          <Churn />
        </Timed>
      );
    case "health":
      return (
        <Timed>
          <Health />
        </Timed>
      );
  }
}

function App(): JSX.Element {
  const problem = overviewFailure.value;
  const known = overview.value;
  useEffect(() => {
    document.title = known ? `${known.cluster.name.replace(/[^\x20-\x7e]/g, "?")} · decklog` : "decklog";
  }, [known?.cluster.name]);
  return (
    <>
      <Header />
      {problem && !choosing.value && (
        <div class="banner" role="alert">
          <Text of={problem.message} max={600} />
          {known && " What you see is what it said last."}
        </div>
      )}
      <main id="main" tabIndex={-1} class={`page page-${view.value.page}`}>
        <h1 class="sr">{choosing.value ? "Clusters" : NAV.find(([page]) => page === view.value.page)?.[1] ?? "Object"}</h1>
        <Body />
      </main>
      <div class="sr" role="status" aria-live="polite">
        {said.value}
      </div>
      <Help />
    </>
  );
}

start();
listen();
const root = document.getElementById("app");
if (root) render(<App />, root);
