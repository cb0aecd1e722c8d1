// A realistic load, with every answer compared with the expected one: 70 % delegations that Envoy verifies; 20 % status
// queries and 10 % batches of evidence, both to the control plane. loadtest/README.md says how to run it, on one
// machine and on many.
//
// POOL               the folder that `credence-pool` made; pool
// ENVOY              Envoy's address; http://127.0.0.1:8080
// CONTROL_PLANE      the control plane's HTTP API; http://127.0.0.1:7070
// TOKEN_FILE, TOKEN  an operator's credential (role admin), as a file or as text
// BEARER_PATH, PROOF_PATH   paths of the two rules; /v1/catalog/{item}, /v1/proven/{item}
// RATE               requests a second of all machines together: one number, or several, reached in turn; 1000
// RAMP, DURATION     the time to reach each rate, and the time to hold it; 5s, 30s
// VUS                virtual users for every 1,000 requests/s, which limit the requests in flight; 100
// BATCH              entries of a batch of evidence; 10
// HOT, HOT_SHARE     the number of frequently used delegations of each kind, and their share; 100, 0.9
// REPLAYS            0: never send a proof twice, since several Envoys would accept it once each
// P99_MS             the limit of p99, for each class; 1000
// OUT                an existing folder for summary.json, summary.html and latency.svg; or - for JSON on standard
//                    output; .
import exec from "k6/execution";
import http from "k6/http";
import { sleep } from "k6";
import { Counter } from "k6/metrics";

import { absolute, every, pick, pool } from "./pool.js";
import { prove } from "./proof.js";
import { CLASSES, STATISTICS, files } from "./summary.js";

const ENVOY = __ENV.ENVOY || "http://127.0.0.1:8080";
const CONTROL_PLANE = __ENV.CONTROL_PLANE || "http://127.0.0.1:7070";
const TOKEN = (__ENV.TOKEN_FILE ? open(absolute(__ENV.TOKEN_FILE)) : __ENV.TOKEN || "").trim();
const PATHS = {
  bearer: __ENV.BEARER_PATH || "/v1/catalog/{item}",
  proof: __ENV.PROOF_PATH || "/v1/proven/{item}",
};
const RATES = (__ENV.RATE || "1000").split(",").map(Number);
const RAMP = __ENV.RAMP || "5s";
const DURATION = __ENV.DURATION || "30s";
const USERS_PER_1000 = Number(__ENV.VUS || 100);
// For each class, at low rates.
const FEWEST_USERS = 10;
const BATCH = Number(__ENV.BATCH || 10);
const REPLAYS = __ENV.REPLAYS !== "0";
const P99_MS = Number(__ENV.P99_MS || 1000);

const KINDS = Object.keys(pool.kinds);

// === options ===

export const options = {
  scenarios: {
    verify: scenario("verify", 7),
    status: scenario("status", 2),
    audit: scenario("audit", 1),
  },
  thresholds: {
    // An answer other than the expected one: the status, or the reason.
    wrong_answers: ["count==0"],
    // No answer, or a status of 500 or more.
    errors: ["count==0"],
    http_req_failed: ["rate==0"],
    // Requests that were due while all virtual users still waited for an answer.
    dropped_iterations: ["count==0"],
    ...Object.fromEntries(CLASSES.map((name) => [`http_req_duration{class:${name}}`, [`p(99)<${P99_MS}`]])),
    // These always hold: they make k6 count each class.
    ...Object.fromEntries([...CLASSES, "setup"].map((name) => [`http_reqs{class:${name}}`, ["count>=0"]])),
    ...Object.fromEntries(KINDS.map((kind) => [`answers{kind:${kind}}`, ["count>=0"]])),
    entries_acknowledged: ["count>=0"],
  },
  summaryTrendStats: STATISTICS,
  // Only the useful one of k6's tags, since each further tag costs memory and time.
  systemTags: ["error_code"],
  setupTimeout: "10m",
  noCookiesReset: true,
  userAgent: "credence-loadtest",
};

// This many tenths of the requests.
function scenario(exec, tenths) {
  const most = (Math.max(...RATES) * tenths) / 10;
  const users = Math.max(Math.ceil((most * USERS_PER_1000) / 1000), FEWEST_USERS);
  return {
    executor: "ramping-arrival-rate",
    exec,
    // Makes shares whole numbers.
    timeUnit: "10s",
    startRate: RAMP === "0s" ? RATES[0] * tenths : 0,
    stages: RATES.flatMap((rate) => [
      { target: rate * tenths, duration: RAMP },
      { target: rate * tenths, duration: DURATION },
    ]).filter(({ duration }) => duration !== "0s"),
    preAllocatedVUs: users,
    maxVUs: users,
    gracefulStop: "30s",
  };
}

const wrongAnswers = new Counter("wrong_answers");
const errors = new Counter("errors");
// Correct answers.
const answers = new Counter("answers");
const entriesAcknowledged = new Counter("entries_acknowledged");

// One request. An exception is an error too, which k6 by itself would only log.
function counted(work) {
  const failed = (error) => complain({ status: 0, error }, "a request");
  return () => {
    try {
      return work()?.catch(failed);
    } catch (error) {
      return failed(error);
    }
  };
}

// === verify: through Envoy ===

export const verify = counted(() => {
  const kind = KINDS_BY_SHARE[Math.floor(Math.random() * KINDS_BY_SHARE.length)];
  const delegation = pick(kind);
  if (pool.kinds[kind].rule === "bearer" || kind === "proof_missing") judge(kind, send(delegation, kind));
  else return verifyWithProof(kind, delegation);
});

async function verifyWithProof(kind, delegation) {
  const { asked, by, proof } = await proven(kind, delegation);
  judge(asked, send(by, asked, proof));
}

// Each kind as often as it is in the pool.
const KINDS_BY_SHARE = KINDS.filter((kind) => REPLAYS || kind !== "proof_replayed").flatMap((kind) =>
  pool.kinds[kind].places.map(() => kind),
);

// The proof to send, by the holder of `by`. The answer must be that of the kind `asked`.
async function proven(kind, delegation) {
  const now = Math.floor(Date.now() / 1000);
  // A proof that this virtual user has used already. The first time, it is a proof like any other.
  if (kind === "proof_replayed" && used && now - used.at < REPLAY_SECONDS) return { ...used, asked: kind };
  const item = kind === "proof_mismatch" ? `${delegation.item}-else` : delegation.item;
  const proof = await prove(delegation, item, kind === "proof_old" ? now - 3600 : now);
  if (kind !== "proof_replayed") return { asked: kind, by: delegation, proof };
  used = { at: now, by: delegation, proof };
  return { ...used, asked: "proven" };
}

let used;

// Well within every window: an older proof would be denied for its age.
const REPLAY_SECONDS = 10;

function send(delegation, kind, proof, more = { tags: { class: "verify", kind } }) {
  const { rule, status } = pool.kinds[kind];
  const headers = {};
  if (delegation.chain) headers.delegation = delegation.chain;
  if (proof) headers["delegation-proof"] = proof;
  return http.get(ENVOY + PATHS[rule].replace("{item}", delegation.item), {
    headers,
    responseCallback: only(status),
    ...more,
  });
}

function judge(kind, answer) {
  const { status, reason } = pool.kinds[kind];
  if (answer.status === status && (status === 200 || member(answer, "reason") === reason)) answers.add(1, { kind });
  else complain(answer, `${kind}: ${status} ${reason}`);
}

// === status: the control plane's answer to relying parties other than Envoy ===

export const status = counted(() => {
  const revoked = Math.random() < REVOKED_SHARE && pool.kinds.revoked_delegation;
  const kind = revoked ? REVOKED[Math.floor(Math.random() * REVOKED.length)] : "delegated";
  const answer = http.get(`${CONTROL_PLANE}/v1/delegations/status?${pick(kind).facts}`, {
    ...authorised("status"),
    responseCallback: only(200),
  });
  const wanted = revoked ? { status: "revoked", reason: kind } : { status: "active", reason: undefined };
  const found = answer.status === 200 && { status: member(answer, "status"), reason: member(answer, "reason") };
  if (found && found.status === wanted.status && found.reason === wanted.reason) return;
  complain(answer, `status: ${wanted.status} ${wanted.reason || ""}`);
});

const REVOKED = ["revoked_delegation", "revoked_principal"];
const REVOKED_SHARE = 0.1;

// === audit: decisions of a relying party, as a source of its own for each virtual user ===

let source;

export const audit = counted(() => {
  source = source || begin();
  if (!source) return;
  // A batch without an acknowledgement is sent again unchanged: entries that are stored already are skipped.
  source.batch = source.batch || batch();
  const last = source.next + BATCH - 1;
  const answer = http.post(
    `${CONTROL_PLANE}/v1/audit/sources/${source.ticket}/batches`,
    JSON.stringify({ first_sequence: source.next, entries: source.batch }),
    { ...authorised("audit"), responseCallback: only(200) },
  );
  if (answer.status !== 200 || member(answer, "acknowledged") !== last) {
    complain(answer, `audit: 200, acknowledged ${last}`);
    return;
  }
  entriesAcknowledged.add(BATCH);
  source = { ticket: source.ticket, next: last + 1 };
});

function begin() {
  const answer = http.post(`${CONTROL_PLANE}/v1/audit/sources`, JSON.stringify({ node: "k6", plugin: "load.js" }), {
    ...authorised("source"),
    responseCallback: only(201),
  });
  if (answer.status === 201) return { ticket: member(answer, "ticket"), next: 1 };
  complain(answer, "audit: a new source");
  return undefined;
}

function batch() {
  const { subject, ids } = pick("delegated");
  const entry = {
    kind: "decision",
    time: new Date().toISOString(),
    decision: "allow",
    reason: "delegated",
    // By this rule, the ledger's readers tell these records from Envoy's.
    rule: "k6",
    tool: pool.tool,
    principal: { issuer: pool.issuer, subject },
    delegation_ids: ids.split(" "),
    method: "GET",
    path_template: PATHS.bearer,
  };
  return Array(BATCH).fill(entry);
}

// === before and after ===

export function setup() {
  if (TOKEN === "") exec.test.abort("an operator's credential is needed: -e TOKEN_FILE=/path/of/operator.token");
  if (pool.expires_at < Date.now() / 1000) exec.test.abort("the pool has expired: make another (credence-pool)");
  becomes("the control plane is ready", () => quietly(`${CONTROL_PLANE}/readyz`).status === 200);
  if (pool.kinds.revoked_delegation) {
    revoke("revoked_delegation", ({ subject, ids }) => ({ delegation: { issuer: pool.issuer, subject, id: ids.split(" ")[0] } }));
    revoke("revoked_principal", ({ subject }) => ({ principal: { issuer: pool.issuer, subject } }));
  }
  // Repeatedly, since each of Envoy's workers must know it.
  for (const kind of ["delegated", ...REVOKED].filter((kind) => pool.kinds[kind])) {
    let right = 0;
    becomes(`Envoy answers ${kind} with ${pool.kinds[kind].status} ${pool.kinds[kind].reason}`, () => {
      const answer = send(pick(kind), kind, undefined, { tags: { class: "setup" }, responseCallback: null });
      const { status, reason } = pool.kinds[kind];
      right = answer.status === status && (status === 200 || member(answer, "reason") === reason) ? right + 1 : 0;
      return right >= RIGHT_IN_A_ROW;
    });
  }
  // Proofs are denied for some seconds after Envoy's start.
  sleep(SETTLE_SECONDS);
}

const RIGHT_IN_A_ROW = 20;
const SETTLE_SECONDS = Number(__ENV.SETTLE || 6);

// Repeating it does no harm.
function revoke(kind, subjectOf) {
  const requests = [];
  for (const delegation of every(kind)) {
    const body = JSON.stringify({ ...subjectOf(delegation), reason: "load test" });
    const settings = { ...authorised("revocation"), responseCallback: only(200) };
    requests.push(["POST", `${CONTROL_PLANE}/v1/revocations`, body, settings]);
  }
  for (let from = 0; from < requests.length; from += 20) {
    for (const answer of http.batch(requests.slice(from, from + 20))) {
      if (answer.status !== 200) exec.test.abort(`revoking failed: ${answer.status} ${answer.body}`);
    }
  }
}

function becomes(what, check) {
  for (let attempt = 0; attempt < 600; attempt++) {
    if (check()) return;
    if (attempt % 25 === 24) sleep(1);
  }
  exec.test.abort(`still not true: ${what}`);
}

function quietly(url) {
  return http.get(url, { responseCallback: null, tags: { class: "ready" } });
}

export function handleSummary(data) {
  return files(data, { rates: RATES, pool, out: __ENV.OUT || "." });
}

// === helpers ===

function authorised(name) {
  return { headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" }, tags: { class: name } };
}

const callbacks = {};
function only(status) {
  callbacks[status] = callbacks[status] || http.expectedStatuses(status);
  return callbacks[status];
}

function member(answer, name) {
  try {
    return JSON.parse(answer.body)[name];
  } catch {
    return undefined;
  }
}

// For one virtual user.
const MOST_COMPLAINTS = 3;
let complaints = 0;

function complain(answer, wanted) {
  const failed = answer.status === 0 || answer.status >= 500;
  (failed ? errors : wrongAnswers).add(1);
  // The first ones are enough: a line for each would be a load of its own.
  complaints += 1;
  if (complaints > MOST_COMPLAINTS) return;
  console.error(`wanted ${wanted}; got ${answer.status} ${answer.error || ""} ${String(answer.body).slice(0, 300)}`);
}
