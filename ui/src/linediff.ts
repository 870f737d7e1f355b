// The difference of two texts by lines, for the file form, where there is nobody to ask. Myers' algorithm; where the texts have
// too little in common for it, the part that differs is given whole.

const EFFORT = 800;

/** Lines with `- `, `+ ` or two spaces before them; what is far from every change is left out as `…`. */
export function lineDiff(before: string, after: string, context = 3): string {
  const a = before.split("\n");
  const b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const middle = script(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  const lines = [
    ...a.slice(0, head).map((line) => `  ${line}`),
    ...middle,
    ...a.slice(a.length - tail).map((line) => `  ${line}`),
  ];
  const keep = new Set<number>();
  for (const [index, line] of lines.entries()) {
    if (line.startsWith("  ")) continue;
    for (let near = index - context; near <= index + context; near += 1) keep.add(near);
  }
  const shown: string[] = [];
  for (const [index, line] of lines.entries()) {
    if (keep.has(index)) shown.push(line);
    else if (shown.length === 0 || shown[shown.length - 1] !== "  …") shown.push("  …");
  }
  return keep.size === 0 ? "" : shown.join("\n");
}

function script(a: string[], b: string[]): string[] {
  const most = Math.min(EFFORT, a.length + b.length);
  const furthest = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  for (let edits = 0; edits <= most; edits += 1) {
    trace.push(new Map(furthest));
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x += 1;
      furthest.set(k, x);
      if (x >= a.length && x - k >= b.length) return walkBack(a, b, trace);
    }
  }
  return [...a.map((line) => `- ${line}`), ...b.map((line) => `+ ${line}`)];
}

function walkBack(a: string[], b: string[], trace: Map<number, number>[]): string[] {
  const lines: string[] = [];
  let x = a.length;
  let y = b.length;
  for (let edits = trace.length - 1; edits >= 0; edits -= 1) {
    const before = trace[edits] ?? new Map<number, number>();
    const k = x - y;
    const down = k === -edits || (k !== edits && (before.get(k - 1) ?? -1) < (before.get(k + 1) ?? -1));
    const k0 = down ? k + 1 : k - 1;
    const x0 = before.get(k0) ?? 0;
    const y0 = x0 - k0;
    while (x > x0 && y > y0 && x > 0 && y > 0) {
      lines.push(`  ${a[x - 1] ?? ""}`);
      x -= 1;
      y -= 1;
    }
    if (edits === 0) break;
    if (down) lines.push(`+ ${b[y0] ?? ""}`);
    else lines.push(`- ${a[x0] ?? ""}`);
    x = x0;
    y = y0;
  }
  return lines.reverse();
}
