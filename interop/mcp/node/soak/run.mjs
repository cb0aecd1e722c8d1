// Sends cases, several at a time, and checks them batch by batch.

import { setTimeout as pause } from 'node:timers/promises';
import { encode } from './draft.mjs';

/** How many requests are in flight. */
const LANES = 24;
/** How many cases are sent before they are checked. */
const BATCH = 2000;
/** How often a plain case is sent, if Envoy or a server has no answer for it at that moment. */
const ATTEMPTS = 20;

/**
 * Sends the cases `first` to `first + count - 1` with `client` to the filter. If `isPlanted`, every third goes to its
 * server without the filter. `checkRunning` fails if a program ended. Returns the counts by server and by answer.
 */
export async function run({ first, count, isPlanted, caseOf, client, direct, sessions, fillerOf, check, ...at }) {
  const { evidence, checkRunning } = at;
  const counts = { servers: new Map(), answers: new Map() };
  const add = (map, key, what, more = 1) => {
    if (!map.has(key)) map.set(key, {});
    map.get(key)[what] = (map.get(key)[what] ?? 0) + more;
  };
  const answers = new Map();

  async function sendOnce(found) {
    const { draft, server, number } = found;
    const fill = await fillerOf(found);
    const goesDirect = isPlanted && number % 3 === 0;
    const bytes = encode(goesDirect ? { ...draft, path: '/mcp' } : draft, fill);
    const to = goesDirect ? direct.get(server.name) : client;
    return to.send(bytes, { method: draft.httpMethod, isOdd: draft.framing.isOdd || draft.httpMethod !== 'POST' });
  }

  async function send(number) {
    const found = caseOf(number);
    let answer;
    for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
      answer = await sendOnce(found);
      if (!(found.mustRun || found.mustList) || !isPassing(answer)) break;
      if (answer.status === 404) sessions.forget(found);
      await pause(100);
    }
    const reason = reasonOf(answer);
    if (reason) check.denied(number);
    const isAllowed = 'x-envoy-upstream-service-time' in answer.headers;
    add(counts.servers, found.server.name, 'cases');
    add(counts.servers, found.server.name, 'allowed', Number(isAllowed));
    const what = reason ?? `${isAllowed ? 'the server' : 'Envoy'} answers ${answer.status}`;
    for (const trick of found.tricks.length === 1 ? found.tricks : []) add(counts.answers, trick, what);
    if (found.mustRun) answers.set(number, answer);
    if (found.mustList) check.mustHaveListed(found, answer);
    if (found.mustNotRun && !reason && ![0, 503].includes(answer.status)) {
      check.mustHaveDenied(number, `${found.mustNotRun}; the answer: ${answer.status}`);
    }
    add(counts.answers, '', what);
  }

  const settle = async () => {
    const until = Date.now() + 5000;
    do {
      await pause(100);
      for (const server of check.servers) server.ran().forEach((record) => check.ranOn(server, record));
    } while (Date.now() < until && [...answers.keys()].some((number) => !check.ran.has(number)));
    for (const [number, answer] of answers) check.mustHaveRun(number, answer);
    answers.clear();
    await evidence(check);
  };

  for (let begin = first; begin < first + count; begin += BATCH) {
    const end = Math.min(begin + BATCH, first + count);
    checkRunning();
    let next = begin;
    await Promise.all(Array.from({ length: LANES }, async () => {
      while (next < end) await send(next++);
    }));
    await settle();
  }
  // What ran after its answer.
  await settle();
  return counts;
}

/** Whether the same request may get another answer in a moment: its session has ended, or a connection has. */
function isPassing({ status, body, headers }) {
  const isDenial = reasonOf({ body }) !== undefined;
  if (status === 503 || status === 0) return true;
  return !isDenial && status === 404 && 'x-envoy-upstream-service-time' in headers;
}

/** The filter's reason for a denial. */
function reasonOf({ body }) {
  return body.includes('urn:credence:reason:') ? body.match(/"reason":"(\w+)"/)?.[1] : undefined;
}
