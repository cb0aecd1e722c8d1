// The delegations that `credence-pool` made. They are parsed once and shared by all virtual users; a user unpacks the
// one that it is about to send.
import exec from "k6/execution";
import { SharedArray } from "k6/data";

const FOLDER = (__ENV.POOL || "pool").replace(/\/$/, "");

export const pool = JSON.parse(open(absolute(`${FOLDER}/pool.json`)));
if (pool.format !== "credence-pool-1") throw new Error(`${FOLDER}/pool.json is of another format: ${pool.format}`);

// Each is one text of several parts: k6 keeps the elements as JSON, and reads objects back slowly. They are in an
// array, because k6 freezes a single text letter by letter.
const SEPARATOR = "\n";
const delegations = new SharedArray("delegations", () => {
  const all = [];
  for (const shard of pool.shards) {
    for (const delegation of JSON.parse(open(absolute(`${FOLDER}/${shard}`)))) all.push([packed(delegation)]);
  }
  return all;
});

function packed({ chain, item, subject, ids, facts, proof }) {
  const parts = [chain || "", item, subject, ids.join(" "), facts];
  if (proof) parts.push(proof.id, proof.hash, JSON.stringify(proof.key));
  return parts.join(SEPARATOR);
}

function unpacked([text]) {
  const [chain, item, subject, ids, facts, id, hash, key] = text.split(SEPARATOR);
  return { chain, item, subject, ids, facts, proof: id && { id, hash, key } };
}

// This many delegations of each kind are used again and again, for HOT_SHARE of the requests; otherwise all are equally
// likely.
const HOT = Number(__ENV.HOT || 100);
const HOT_SHARE = Number(__ENV.HOT_SHARE || 0.9);

// One of a kind, at random.
export function pick(kind) {
  const { places } = pool.kinds[kind];
  const count = ownBlocks().length * places.length;
  const among = Math.random() < HOT_SHARE ? Math.min(HOT, count) : count;
  return of(kind, Math.floor(Math.random() * among));
}

// All delegations of a kind, one after the other.
export function* every(kind) {
  const count = ownBlocks().length * pool.kinds[kind].places.length;
  for (let number = 0; number < count; number++) yield of(kind, number);
}

function of(kind, number) {
  const { places } = pool.kinds[kind];
  const block = ownBlocks().first + Math.floor(number / places.length);
  return unpacked(delegations[block * pool.pattern_length + places[number % places.length]]);
}

// A machine that runs a segment of the load uses the same segment of the pool, in whole blocks of every kind. What is
// hot on one machine is cold on the others.
let blocks;
function ownBlocks() {
  if (blocks) return blocks;
  const all = pool.delegations / pool.pattern_length;
  const [from, to] = segment(exec.test.options.executionSegment);
  const first = Math.min(Math.floor(from * all), all - 1);
  blocks = { first, length: Math.max(Math.floor(to * all) - first, 1) };
  return blocks;
}

// "1/4:1/2", as in k6; all of it by default.
export function segment(text) {
  const [from, to] = (text || "0:1").split(":").map((bound) => {
    const [numerator, denominator] = bound.split("/").map(Number);
    return numerator / (denominator || 1);
  });
  return to === undefined ? [0, from] : [from, to];
}

// k6 would resolve a relative path from this file; users mean the current folder.
export function absolute(path) {
  return path.startsWith("/") || !__ENV.PWD ? path : `${__ENV.PWD}/${path}`;
}
