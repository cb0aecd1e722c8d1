// Generated MCP requests, through the real filter in the real Envoy, to servers on the official SDKs. A server must run
// only what the request's delegation allows, and what the filter decided. What a client would send must be allowed and
// run.
//
// Usage: node soak.mjs CASES SEED [FIRST] [--planted] [--exclusions]
// - FIRST: the number of the first case; 0 by default. A disagreement names its seed and number.
// - --planted: every third case goes to its server without the filter. This must be found.
// - --exclusions: also delegations that exclude a value which a server reads out of others; see grants.mjs.
//
// The last line of output is one JSON object. The exit code is 1 if there is a disagreement, if Envoy logs an error, or
// if hardly any case ran.
// Environment: as in test.mjs.

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { freePorts } from '../../oauth/node/processes.mjs';
import { installation } from './credence.mjs';
import { caseMaker } from './soak/cases.mjs';
import { checker } from './soak/checker.mjs';
import { sessionsOf } from './soak/draft.mjs';
import { ledger } from './soak/ledger.mjs';
import { prover } from './soak/proof.mjs';
import { printDisagreements, printErrors, printResult, printTricks } from './soak/report.mjs';
import { run } from './soak/run.mjs';
import { startServers } from './soak/servers.mjs';
import { sessionKeeper } from './soak/sessions.mjs';
import { grantsOf, startStack } from './soak/stack.mjs';
import { client as clientOf } from './soak/wire.mjs';

const { positionals, values: options } = parseArgs({
  allowPositionals: true,
  options: Object.fromEntries(['planted', 'exclusions'].map((name) => [name, { type: 'boolean' }])),
});
const [count, seed, first = 0] = positionals.map(Number);
const { CREDENCE_BIN, CREDENCE_WASM, CREDENCE_ENVOY, CREDENCE_ROOT: root } = process.env;
const programs = { credence: CREDENCE_BIN, wasm: CREDENCE_WASM, envoy: CREDENCE_ENVOY, root };
const folder = mkdtempSync(join(tmpdir(), 'credence-mcp-soak-'));

async function main() {
  const [port, http, grpc, ...ports] = await freePorts(7);
  const credence = installation({ program: programs.credence, folder, http });
  const servers = await startServers({ folder, root, ports });
  const grants = grantsOf(seed, options);
  const at = { programs, folder, credence, servers, ports: { port, http, grpc } };
  const { envoy, delegations, revoked } = await startStack({ ...at, grants });
  // Envoy refuses proofs of its first seconds.
  await pause(PROOFS_AFTER_MS);

  const caseOf = remembering(caseMaker({ seed, servers, grants }));
  const client = clientOf(port);
  const prove = prover(JSON.parse(readFileSync(credence.holderKey, 'utf8')));
  const sessions = sessionKeeper({ send: client.send, delegations, prove });
  const check = checker({ caseOf, ownerOf: sessions.ownerOf, grants, delegations, servers });
  const began = Date.now();
  const counts = await run({
    first, count, caseOf, client, sessions, check,
    direct: new Map(servers.map((server) => [server.name, clientOf(server.port)])),
    fillerOf: filler({ delegations, revoked, sessions, prove }),
    evidence: ledger(credence, options.planted ? 2000 : undefined),
    checkRunning: () => checkRunning({ envoy, servers }),
    isPlanted: options.planted,
  });
  const seconds = Math.round((Date.now() - began) / 1000);
  printTricks(counts.answers);
  printDisagreements({ check, caseOf, seed });
  const isQuiet = !printErrors(envoy.output());
  return printResult({ check, counts, count, seed, seconds }) && isQuiet;
}

function checkRunning({ envoy, servers }) {
  const programs = [{ name: 'envoy', child: envoy }, ...servers];
  const ended = programs.find(({ child }) => (child.exitCode ?? child.signalCode) !== null);
  if (ended) throw new Error(`${ended.name} ended`);
}

const PROOFS_AFTER_MS = 6000;

/** Gives what stands for the texts in braces in a case's headers. */
function filler({ delegations, revoked, sessions, prove }) {
  let usedProof = 'x';
  return async (found) => {
    const ids = new Map();
    const places = found.server.hasSessions ? sessionsOf(found.draft) : [];
    for (const place of places) ids.set(place, await sessions.get(found, Number(place)));
    return (whole, word, place) => {
      if (word === 'delegation') return delegations[place].chain;
      if (word === 'session') return ids.get(Number(place)) ?? 'none';
      if (word === 'revoked') return revoked.chain;
      if (word === 'oldproof') return usedProof;
      if (word === 'proof') return (usedProof = prove(delegations[place], found.proof));
      return whole;
    };
  };
}

/** The last cases, which are asked for several times. */
function remembering(make) {
  const made = new Map();
  return (number) => {
    if (!made.has(number)) {
      if (made.size > 4000) made.clear();
      made.set(number, make(number));
    }
    return made.get(number);
  };
}

const isRight = await main().catch((error) => {
  console.error(error);
  return false;
});
if (isRight || options.planted) rmSync(folder, { recursive: true });
else console.error(`The output of the programs is in ${folder}.`);
process.exit(isRight ? 0 : 1);
