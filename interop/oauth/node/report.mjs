// Counts what was allowed and denied, and by which peers.

import * as attack from './attack.mjs';
import * as web from './web.mjs';

/** Names requests that the test makes by hand, as an attacker would. */
export const ATTACKER = 'attacker';

const counts = { positives: 0, negatives: 0, grants: 0, attacks: 0, failed: 0 };
const issuersSeen = new Set();
const clientsSeen = new Set();

/** One request that must be allowed. */
export async function allowed(client, issuer, what, request) {
  await check('positives', client, issuer, what, request, { status: 200 });
}

/** One request that must be denied with this status, and what else is expected of the filter's answer. */
export async function denied(client, issuer, what, expected, request) {
  await check('negatives', client, issuer, what, request, expected);
}

/** One way to get authority from Credence's issuer, and to lose it. */
export const grant = (what, test) => run('grants', what, test);

/** One attack on Credence's issuer, which must fail. */
export const attacked = (what, test) => run('attacks', what, test);

async function run(kind, what, test) {
  counts[kind] += 1;
  try {
    await test();
    console.log(`ok      ${kind}  ${what}`);
  } catch (error) {
    console.log(`FAILED  ${kind}  ${what}`);
    failed(error.stack + (error.cause ? `\n${JSON.stringify(error.cause)}` : ''));
  }
}

async function check(kind, client, issuer, what, request, expected) {
  counts[kind] += 1;
  let problem;
  try {
    const found = await request();
    const wrong = Object.keys(expected).filter((name) => found[name] !== expected[name]);
    if (wrong.length) problem = `expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`;
    else {
      issuersSeen.add(issuer);
      if (client !== ATTACKER) clientsSeen.add(client);
    }
  } catch (error) {
    problem = error.stack + (error.cause ? `\n${JSON.stringify(error.cause)}` : '');
  }
  const decision = kind === 'positives' ? 'allowed' : 'denied ';
  console.log(`${problem ? 'FAILED' : 'ok    '}  ${decision}  ${client} + ${issuer}: ${what}`);
  if (problem) failed(problem);
}

/** Counts a failure, also one outside of the requests. */
export function failed(problem) {
  counts.failed += 1;
  console.log(problem);
}

export const hasFailed = () => counts.failed > 0;

/** Prints the last line of output. */
export function printCounts() {
  console.log(JSON.stringify({ issuers: issuersSeen.size, clients: clientsSeen.size, ...counts }));
}

/** What a response says; of a denial, as oauth4webapi reads its challenges. */
export async function answer(request) {
  try {
    const response = await request();
    return { status: response.status, body: await response.json() };
  } catch (error) {
    const challenges = web.challengesOf(error);
    if (!challenges) throw error;
    const body = await error.response.json();
    return { status: error.status, ...attack.summary(body, challenges) };
  }
}
