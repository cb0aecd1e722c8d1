// The results of a run: a text for the terminal, summary.json, and a page with a picture of the latencies. All are made
// here, from k6's counts, without any download.

export const CLASSES = ["verify", "status", "audit"];

// In per cent; the picture's lines pass through these.
const PERCENTILES = [1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99];
export const STATISTICS = ["count", "min", ...PERCENTILES.map((percent) => `p(${percent})`), "max", "avg"];

// The return value of handleSummary.
export function files(data, { rates, pool, out }) {
  const report = reportOf(data, rates, pool);
  if (out === "-") return { stdout: `${text(report)}${JSON.stringify(report)}\n` };
  const picture = svg(report);
  return {
    stdout: text(report),
    [`${out}/summary.json`]: `${JSON.stringify(report, null, 2)}\n`,
    [`${out}/latency.svg`]: picture,
    [`${out}/summary.html`]: page(report, picture),
  };
}

function reportOf(data, rates, pool) {
  const count = (name) => data.metrics[name]?.values.count ?? 0;
  const classes = {};
  for (const name of CLASSES) {
    const latency = data.metrics[`http_req_duration{class:${name}}`]?.values ?? {};
    classes[name] = { requests: count(`http_reqs{class:${name}}`), latency_ms: rounded(latency) };
  }
  const thresholds = Object.entries(data.metrics).flatMap(([metric, { thresholds: set }]) =>
    Object.entries(set ?? {}).map(([condition, { ok }]) => ({ metric, condition, ok })),
  );
  const requests = CLASSES.reduce((sum, name) => sum + classes[name].requests, 0);
  return {
    rates,
    seconds: data.state.testRunDurationMs / 1000,
    requests,
    wrong: count("wrong_answers"),
    errors: count("errors"),
    dropped: count("dropped_iterations"),
    entries_acknowledged: count("entries_acknowledged"),
    // All requests to Envoy, including those before the load.
    envoy_requests: classes.verify.requests + count("http_reqs{class:setup}"),
    classes,
    answers: Object.fromEntries(
      Object.entries(pool.kinds).map(([kind, { status, reason, recorded }]) => [
        kind,
        { status, reason, recorded, count: count(`answers{kind:${kind}}`) },
      ]),
    ),
    // Thresholds with a real condition; the others only make k6 count.
    thresholds: thresholds.filter(({ condition }) => condition !== "count>=0"),
  };
}

function rounded(values) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Math.round(value * 1000) / 1000]));
}

// === for the terminal ===

function text(report) {
  const lines = [
    "",
    `${report.requests} requests at ${report.rates.join(", ")}/s: ${report.wrong} wrong, ${report.errors} errors, ${report.dropped} dropped`,
    "",
    `${"".padEnd(8)}${["requests", "p50 ms", "p99 ms", "p99.9 ms", "max ms"].map((head) => head.padStart(11)).join("")}`,
  ];
  for (const name of CLASSES) {
    const { requests, latency_ms: latency } = report.classes[name];
    const cells = [requests, latency["p(50)"], latency["p(99)"], latency["p(99.9)"], latency.max];
    lines.push(name.padEnd(8) + cells.map((cell) => String(cell ?? "-").padStart(11)).join(""));
  }
  const broken = report.thresholds.filter(({ ok }) => !ok);
  lines.push("", ...broken.map(({ metric, condition }) => `not met: ${metric} ${condition}`), "");
  return lines.join("\n");
}

// === the picture ===

// Percentiles to the right, with equal width for each nine; milliseconds upwards, with equal height for each power of
// ten.
const WIDTH = 860;
const HEIGHT = 460;
const LEFT = 70;
const RIGHT = 120;
const TOP = 46;
const BOTTOM = 56;
const COLOURS = { verify: "#1f6feb", status: "#2da44e", audit: "#bf5700" };
const MARKS = [0, 50, 90, 99, 99.9, 99.99];

function svg(report) {
  const lines = CLASSES.map((name) => ({ name, points: points(report.classes[name].latency_ms) })).filter(
    ({ points: all }) => all.length > 0,
  );
  const values = lines.flatMap(({ points: all }) => all.map(([, value]) => value));
  const low = Math.floor(Math.log10(Math.min(...values, 1)));
  const high = Math.max(Math.ceil(Math.log10(Math.max(...values, 1))), low + 1);

  const nines = (percent) => -Math.log10(1 - percent / 100);
  const x = (percent) => LEFT + (nines(percent) / nines(99.99)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((Math.log10(value) - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);

  const parts = [
    `<text x="${LEFT}" y="24" font-size="16">Latency at ${report.rates.join(", ")} requests/s</text>`,
    ...MARKS.flatMap((percent) => [
      `<line x1="${at(x(percent))}" y1="${TOP}" x2="${at(x(percent))}" y2="${HEIGHT - BOTTOM}" stroke="#d0d7de"/>`,
      `<text x="${at(x(percent))}" y="${HEIGHT - BOTTOM + 20}" text-anchor="middle">${percent} %</text>`,
    ]),
    `<text x="${at((LEFT + WIDTH - RIGHT) / 2)}" y="${HEIGHT - 12}" text-anchor="middle">of the requests took at most</text>`,
  ];
  for (let power = low; power <= high; power++) {
    const height = at(y(10 ** power));
    parts.push(
      `<line x1="${LEFT}" y1="${height}" x2="${WIDTH - RIGHT}" y2="${height}" stroke="#d0d7de"/>`,
      `<text x="${LEFT - 8}" y="${height}" text-anchor="end" dominant-baseline="middle">${milliseconds(power)}</text>`,
    );
  }
  lines.forEach(({ name, points: all }, place) => {
    const path = all.map(([percent, value]) => `${at(x(percent))},${at(y(value))}`).join(" ");
    const legend = TOP + 16 + 22 * place;
    parts.push(
      `<polyline points="${path}" fill="none" stroke="${COLOURS[name]}" stroke-width="2"/>`,
      `<line x1="${WIDTH - RIGHT + 14}" y1="${legend}" x2="${WIDTH - RIGHT + 38}" y2="${legend}" stroke="${COLOURS[name]}" stroke-width="2"/>`,
      `<text x="${WIDTH - RIGHT + 44}" y="${legend}" dominant-baseline="middle">${name}</text>`,
    );
  });
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}" ` +
    `font-family="sans-serif" font-size="12" fill="#24292f"><rect width="100%" height="100%" fill="#ffffff"/>` +
    `${parts.join("")}</svg>\n`
  );
}

// A latency of 0 has no logarithm.
function points(latency) {
  return PERCENTILES.map((percent) => [percent, latency[`p(${percent})`]]).filter(([, value]) => value > 0);
}

function at(place) {
  return Math.round(place * 10) / 10;
}

function milliseconds(power) {
  return power < 0 ? `${(10 ** power).toFixed(-power)} ms` : `${10 ** power} ms`;
}

// === the page ===

function page(report, picture) {
  const classRows = CLASSES.map((name) => {
    const { requests, latency_ms: latency } = report.classes[name];
    return [name, requests, latency["p(50)"], latency["p(90)"], latency["p(99)"], latency["p(99.9)"], latency.max];
  });
  const answerRows = Object.entries(report.answers).map(([kind, { status, reason, count }]) => [kind, status, reason, count]);
  const thresholdRows = report.thresholds.map(({ metric, condition, ok }) => [metric, condition, ok ? "met" : "NOT MET"]);
  return `<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Credence under load</title><style>
body { font: 15px/1.5 sans-serif; max-width: 60rem; margin: 2rem auto; color: #24292f }
table { border-collapse: collapse; margin: 1rem 0 } td, th { padding: .2rem .8rem; border-bottom: 1px solid #d0d7de; text-align: left }
</style></head><body>
<h1>Credence under load</h1>
<p>${report.requests} requests in ${report.seconds.toFixed(1)} s, asked for at ${report.rates.join(", ")}/s: ${report.wrong} wrong,
${report.errors} errors, ${report.dropped} dropped.</p>
${picture}
${table(["class", "requests", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"], classRows)}
<h2>Answers</h2>
${table(["what was sent", "status", "reason", "requests"], answerRows)}
<h2>Conditions</h2>
${table(["of", "condition", ""], thresholdRows)}
</body></html>
`;
}

function table(heads, rows) {
  const row = (cells, tag) => `<tr>${cells.map((cell) => `<${tag}>${escaped(cell)}</${tag}>`).join("")}</tr>`;
  return `<table>${row(heads, "th")}${rows.map((cells) => row(cells, "td")).join("")}</table>`;
}

function escaped(cell) {
  return String(cell ?? "-")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;");
}
