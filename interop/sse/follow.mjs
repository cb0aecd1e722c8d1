// Follows the revocations of a real control plane with the EventSource of the npm package `eventsource`, over
// connections that are cut again and again and across a restart. Checks that no revocation is missed or repeated.
// Usage: node follow.mjs CREDENCE

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { EventSource } from "eventsource";

const REVOCATIONS = 2000;
const FOLLOWERS_FROM_THE_BEGINNING = 3;
const FOLLOWERS_FROM_NOW = 3;
/** Milliseconds between two cuts of every connection, at most. */
const LONGEST_PEACE = 600;
/** The milliseconds over which the revocations are spread. */
const DURATION = 12_000;
const DEADLINE = 120_000;

const credence = process.argv[2] ?? "target/release/credence";
const folder = await mkdtemp(join(tmpdir(), "credence-sse-"));
const tokenFile = join(folder, "token");
setTimeout(() => fail(`not done within ${DEADLINE} ms: ${state()}`), DEADLINE).unref();

let server = await serve("0", ["--init", "--fresh"]);
const port = server.address.split(":").at(-1);
const token = (await readFile(tokenFile, "utf8")).trim();
const proxy = await cuttingProxy();
const url = `http://127.0.0.1:${proxy.port}/v1/revocations/stream`;

for (let id = 0; id < 10; id++) await revoke(`before-${id}`);
const followers = [
  ...Array.from({ length: FOLLOWERS_FROM_THE_BEGINNING }, () => follow(url, 0)),
  ...Array.from({ length: FOLLOWERS_FROM_NOW }, () => follow(`${url}?from=now`, 10)),
];
await Promise.all(followers.map((follower) => follower.started));

proxy.startCutting();
const begun = Date.now();
for (let id = 0; id < REVOCATIONS; id++) {
  if (id === REVOCATIONS / 2) await restart();
  await revoke(`revoked-${id}`);
  const ahead = begun + (DURATION * id) / REVOCATIONS - Date.now();
  if (ahead > 0) await wait(ahead);
}
proxy.stopCutting();
const head = 10 + REVOCATIONS;
await Promise.all(followers.map((follower) => follower.reaches(head)));
// A repeated record would come now, before the next event that says the stream is complete.
await Promise.all(followers.map((follower) => follower.isAliveAgain()));
for (const follower of followers) follower.stop();
await stop(server);
await rm(folder, { recursive: true });
const connections = followers.map((follower) => follower.connections);
if (Math.min(...connections) < 5) fail(`the connections were cut too rarely: ${connections}`);
console.log(
  `ok: ${followers.length} EventSources saw ${REVOCATIONS} revocations each, in order, none missed, none twice, over ` +
    `${connections.reduce((sum, each) => sum + each)} connections and a restart`,
);
process.exit(0);

/** An EventSource and the last id that it has seen. Every record's id must follow the previous one. */
function follow(url, from) {
  const follower = { seen: from, connections: 0 };
  const source = new EventSource(url, {
    fetch: (input, init) => {
      follower.connections += 1;
      return fetch(input, { ...init, headers: { ...init.headers, authorization: `Bearer ${token}` } });
    },
  });
  const inSnapshot = { now: false };
  let started;
  follower.started = new Promise((resolve) => (started = resolve));
  const waiting = [];
  const arrive = (seq) => {
    follower.seen = seq;
    for (const each of waiting) if (seq >= each.seq) each.resolve();
  };
  source.addEventListener("snapshot_begin", () => {
    if (follower.seen > from) fail("a snapshot came instead of the missed records");
    inSnapshot.now = true;
  });
  source.addEventListener("snapshot_end", (event) => {
    inSnapshot.now = false;
    arrive(position(event));
    started();
  });
  source.addEventListener("position", (event) => {
    if (position(event) !== follower.seen) fail(`a position of ${position(event)} after ${follower.seen}`);
    started();
  });
  source.addEventListener("record", (event) => {
    if (inSnapshot.now) return;
    const seq = position(event);
    if (seq !== follower.seen + 1) fail(`record ${seq} came after ${follower.seen}`);
    const record = JSON.parse(event.data);
    if (record.seq !== seq) fail(`record ${seq} has the number ${record.seq}`);
    const expected = `revoked-${seq - 11}`;
    if (record.delegation?.id !== expected) fail(`record ${seq} is ${event.data}, not of ${expected}`);
    arrive(seq);
  });
  source.addEventListener("error", (event) => {
    if (source.readyState === EventSource.CLOSED) fail(`an EventSource gave up: ${event.code} ${event.message}`);
  });
  follower.reaches = (seq) =>
    follower.seen >= seq ? undefined : new Promise((resolve) => waiting.push({ seq, resolve }));
  follower.isAliveAgain = () => once(source, "alive");
  follower.stop = () => source.close();
  return follower;

  function once(target, name) {
    return new Promise((resolve) => target.addEventListener(name, resolve, { once: true }));
  }
}

function position(event) {
  const [, seq] = event.lastEventId.split(":");
  return Number(seq);
}

/** Starts the control plane and waits until it serves. */
async function serve(port, more) {
  const child = spawn(
    credence,
    [
      ...["serve", "--data", join(folder, "data"), "--operator-token-file", tokenFile, "--drain-promise", "1s"],
      ...["--http", `127.0.0.1:${port}`, "--grpc", "127.0.0.1:0", "--log", "error", ...more],
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  child.on("error", (error) => fail(`${credence}: ${error.message}`));
  for await (const line of createInterface({ input: child.stdout })) {
    if (line.startsWith("http: ")) return { child, address: line.slice("http: ".length) };
  }
  return fail("the control plane did not start");
}

async function stop({ child }) {
  const ended = once(child, "exit");
  child.kill("SIGTERM");
  await ended;
}

async function restart() {
  await stop(server);
  server = await serve(port, []);
}

/** Revokes a delegation of this id. There is no filter to wait for. */
async function revoke(id) {
  const body = JSON.stringify({ delegation: { issuer: "https://id.example.com", subject: "alice", id } });
  const response = await fetch(`http://127.0.0.1:${port}/v1/revocations?wait=committed`, {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
    body,
  });
  if (!response.ok) fail(`${response.status}: ${await response.text()}`);
}

/** Passes connections on to the control plane, and cuts all of them at random times. */
async function cuttingProxy() {
  const open = new Set();
  const listener = net.createServer((client) => {
    const upstream = net.connect(port, "127.0.0.1");
    const pair = [client, upstream];
    open.add(pair);
    for (const end of pair) {
      end.on("error", () => {});
      end.on("close", () => {
        open.delete(pair);
        for (const other of pair) other.destroy();
      });
    }
    client.pipe(upstream);
    upstream.pipe(client);
  });
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  let timer;
  const cut = () => {
    for (const [client] of open) client.resetAndDestroy();
    timer = setTimeout(cut, Math.random() * LONGEST_PEACE);
  };
  return { port: listener.address().port, startCutting: cut, stopCutting: () => clearTimeout(timer) };
}

function state() {
  return followers.map((follower) => `${follower.seen} after ${follower.connections} connections`).join(", ");
}

function fail(message) {
  console.error(`error: ${message}`);
  server?.child.kill("SIGKILL");
  process.exit(1);
}
