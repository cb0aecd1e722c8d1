// The official conformance suite, against a server directly and through the filter.

import { spawn } from 'node:child_process';
import { createWriteStream, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { once } from 'node:events';
import { count, leftOut, result } from './report.mjs';

const PROGRAM = join(import.meta.dirname, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');
const KIND = 'conformance';

/**
 * Runs all scenarios of this version of the protocol, first at `direct`, then at `through`, between which `between` is
 * called. Each scenario that passes directly must pass through the filter, check by check.
 */
export async function compare({ name, version, direct, through, between, folder }) {
  const before = await run({ url: direct, version, folder: join(folder, `${name}-${version}-direct`) });
  between();
  const after = await run({ url: through, version, folder: join(folder, `${name}-${version}-through`) });
  for (const [scenario, checks] of before) {
    const what = `${name}, ${version}: ${scenario}`;
    count('scenarios');
    if (!passes(checks)) {
      leftOut(KIND, `${what} does not pass directly`);
      continue;
    }
    count('passed_direct');
    const problem = difference(checks, after.get(scenario) ?? []);
    if (!problem) count('passed_through');
    result(KIND, what, problem);
  }
}

/** The checks of each scenario, by its name. */
async function run({ url, version, folder }) {
  const child = spawn(process.execPath, [PROGRAM, 'server', '--url', url, '--requirements', version, '-o', folder],
    { stdio: ['ignore', 'pipe', 'pipe'] });
  const log = createWriteStream(`${folder}.log`);
  let output = '';
  child.stdout.on('data', (data) => (output += data));
  for (const stream of [child.stdout, child.stderr]) stream.pipe(log, { end: false });
  // It fails if any scenario does.
  await once(child, 'close');
  log.end();
  const folders = readdirSync(folder);
  return new Map([...output.matchAll(/^=== Running scenario: (\S+) ===$/gm)].map(([, scenario]) => {
    const own = folders.find((entry) => entry.replace(/-\d{4}-\d\d-\d\dT.*/, '') === `server-${scenario}`);
    // There is none if the scenario itself broke.
    const file = own && join(folder, own, 'checks.json');
    return [scenario, file ? readChecks(file) : [{ id: scenario, status: 'FAILURE', errorMessage: 'no result' }]];
  }));
}

function readChecks(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    if (error.code !== 'ENOENT') throw error;
    return [{ id: 'result', status: 'FAILURE', errorMessage: 'the scenario broke' }];
  }
}

const passes = (checks) =>
  checks.some(({ status }) => status === 'SUCCESS') && checks.every(({ status }) => status !== 'FAILURE');

/** What is worse than before; undefined if nothing is. */
function difference(before, after) {
  const succeeded = (checks, id) => checks.filter((check) => check.id === id && check.status === 'SUCCESS').length;
  const ids = [...new Set(before.map(({ id }) => id))].filter((id) => succeeded(after, id) < succeeded(before, id));
  const failures = after.filter(({ status }) => status === 'FAILURE');
  const shown = (id) => {
    const worse = after.filter((check) => check.id === id && check.status !== 'SUCCESS');
    const lines = worse.map(({ status, errorMessage = '', details = {} }) =>
      `${id}: ${status} ${errorMessage} ${JSON.stringify(details).slice(0, MAX_DETAILS)}`);
    return lines.join('\n') || `${id}: missing`;
  };
  const worse = new Set([...ids, ...failures.map(({ id }) => id)]);
  return worse.size ? [...worse].map(shown).join('\n') : undefined;
}

const MAX_DETAILS = 1500;
