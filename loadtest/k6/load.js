// The load that Credence is made for, with every answer compared with the one that it has to be: 70 % delegations to
// verify, by Envoy; 20 % questions whether one is revoked and 10 % batches of evidence, both to the control plane.
// loadtest/README.md says how to run it, on one machine and on many.
//
// POOL               the folder that `credence-pool` made; pool
// ENVOY              where requests go; http://127.0.0.1:8080
// CONTROL_PLANE      the control plane's HTTP API; http://127.0.0.1:7070
// TOKEN_FILE, TOKEN  an operator's credential (role admin), or the file of it
// BEARER_PATH, PROOF_PATH   paths of the two rules; /v1/catalog/{item}, /v1/proven/{item}
// RATE               requests a second of all machines together: one number, or several that are gone to in turn; 1000
// RAMP, DURATION     how long it takes to get to each, and how long it stays there; 5s, 30s
// VUS                virtual users for every 1,000 requests/s: as many wait for an answer at the most; 100
// BATCH              entries of a batch of evidence; 10
// HOT, HOT_SHARE     how many delegations of each kind are asked for how often; 100, 0.9
// REPLAYS            0: never send a proof twice, because several Envoys answer, and each would take it once
// P99_MS             the most that p99 may be, of each class; 1000
// OUT                the folder, which has to be there, for summary.json, summary.html and latency.svg; or - to have
//                    the JSON on standard output; .
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
// Of each class, at low rates.
const FEWEST_USERS = 10;
const BATCH = Number(__ENV.BATCH || 10);
const REPLAYS = __ENV.REPLAYS !== "0";
const P99_MS = Number(__ENV.P99_MS || 1000);

const KINDS = Object.keys(pool.kinds);

// === what is asked for ===

export const options = {
  scenarios: {
    verify: scenario("verify", 7),
    status: scenario("status", 2),
    audit: scenario("audit", 1),
  },
  thresholds: {
    // Another answer than the one that it has to be: the status, or the reason.
    wrong_answers: ["count==0"],
    // No answer, or one of 500 and more.
    errors: ["count==0"],
    http_req_failed: ["rate==0"],
    // Requests that were due, when all virtual users still waited for an answer.
    dropped_iterations: ["count==0"],
    ...Object.fromEntries(CLASSES.map((name) => [`http_req_duration{class:${name}}`, [`p(99)<${P99_MS}`]])),
    // These hold always: they are how k6 is told to count what is counted apart.
    ...Object.fromEntries([...CLASSES, "setup"].map((name) => [`http_reqs{class:${name}}`, ["count>=0"]])),
    ...Object.fromEntries(KINDS.map((kind) => [`answers{kind:${kind}}`, ["count>=0"]])),
    entries_acknowledged: ["count>=0"],
  },
  summaryTrendStats: STATISTICS,
  // Of what k6 would tell apart, only what is of use: every further tag costs memory and time.
  systemTags: ["error_code"],
  setupTimeout: "10m",
  noCookiesReset: true,
  userAgent: "credence-loadtest",
};

// So many tenths of the requests.
function scenario(exec, tenths) {
  const most = (Math.max(...RATES) * tenths) / 10;
  const users = Math.max(Math.ceil((most * USERS_PER_1000) / 1000), FEWEST_USERS);
  return {
    executor: "ramping-arrival-rate",
    exec,
    // So that shares are whole numbers.
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
// That were right.
const answers = new Counter("answers");
const entriesAcknowledged = new Counter("entries_acknowledged");

// One request; where not even that comes about, it is an error too, which k6 by itself would only write down.
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

// As often as it is in the pool.
const KINDS_BY_SHARE = KINDS.filter((kind) => REPLAYS || kind !== "proof_replayed").flatMap((kind) =>
  pool.kinds[kind].places.map(() => kind),
);

// What to send: a proof by the holder of `by`, for which the answer has to be that of the kind `asked`.
async function proven(kind, delegation) {
  const now = Math.floor(Date.now() / 1000);
  // One that this virtual user has used already; the first time it is a proof like any other.
  if (kind === "proof_replayed" && used && now - used.at < REPLAY_SECONDS) return { ...used, asked: kind };
  const item = kind === "proof_mismatch" ? `${delegation.item}-else` : delegation.item;
  const proof = await prove(delegation, item, kind === "proof_old" ? now - 3600 : now);
  if (kind !== "proof_replayed") return { asked: kind, by: delegation, proof };
  used = { at: now, by: delegation, proof };
  return { ...used, asked: "proven" };
}

let used;

// Well within every window: an older proof would be refused for its age.
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

// === status: the control plane's answer to relying parties that are no Envoy ===

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

// === audit: a relying party's decisions, as a source of its own for each virtual user ===

let source;

export const audit = counted(() => {
  source = source || begin();
  if (!source) return;
  // One that was not acknowledged is sent again, as it was: what is stored already is passed over.
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
    // By this the ledger's readers tell these from what Envoy recorded.
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
  // In a row, since each of Envoy's workers has to know.
  for (const kind of ["delegated", ...REVOKED].filter((kind) => pool.kinds[kind])) {
    let right = 0;
    becomes(`Envoy answers ${kind} with ${pool.kinds[kind].status} ${pool.kinds[kind].reason}`, () => {
      const answer = send(pick(kind), kind, undefined, { tags: { class: "setup" }, responseCallback: null });
      const { status, reason } = pool.kinds[kind];
      right = answer.status === status && (status === 200 || member(answer, "reason") === reason) ? right + 1 : 0;
      return right >= RIGHT_IN_A_ROW;
    });
  }
  // Proofs are refused for some seconds after Envoy's start.
  sleep(SETTLE_SECONDS);
}

const RIGHT_IN_A_ROW = 20;
const SETTLE_SECONDS = Number(__ENV.SETTLE || 6);

// Repeating it does no harm: what is revoked stays so.
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
  exec.test.abort(`this did not become so: ${what}`);
}

function quietly(url) {
  return http.get(url, { responseCallback: null, tags: { class: "ready" } });
}

export function handleSummary(data) {
  return files(data, { rates: RATES, pool, out: __ENV.OUT || "." });
}

// === small things ===

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

// Of one virtual user.
const MOST_COMPLAINTS = 3;
let complaints = 0;

function complain(answer, wanted) {
  const failed = answer.status === 0 || answer.status >= 500;
  (failed ? errors : wrongAnswers).add(1);
  // The first ones tell the story; a line for each would be a load of its own.
  complaints += 1;
  if (complaints > MOST_COMPLAINTS) return;
  console.error(`wanted ${wanted}; got ${answer.status} ${answer.error || ""} ${String(answer.body).slice(0, 300)}`);
}
