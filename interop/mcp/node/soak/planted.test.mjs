// The comparison of generated requests finds what is planted: requests that go to the servers without the filter.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';

const [CASES, SEED] = ['8000', '1'];
/** What a server that is not protected runs. */
const KINDS = [
  'a server ran what the delegation does not allow',
  'a server ran what the proof is not for',
  'a server ran a request without a valid delegation',
  'a server ran something else than the filter allowed',
  'a server ran what no evidence allows',
  'the filter allowed what the delegation does not allow',
];

test('requests without the filter are found, on each server and of each kind', async () => {
  const program = join(import.meta.dirname, '../soak.mjs');
  const { code, output } = await new Promise((done) =>
    execFile(process.execPath, [program, CASES, SEED, '--planted'], { maxBuffer: 2 ** 28 }, (error, output) =>
      done({ code: error?.code ?? 0, output })));
  assert.equal(code, 1);
  const { disagreements, kinds, servers } = JSON.parse(output.trim().split('\n').at(-1));
  assert(disagreements > 100, `${disagreements}`);
  for (const kind of KINDS) assert(kinds[kind] > 0, kind);
  for (const [name, { disagreements: found }] of Object.entries(servers)) assert(found > 20, name);
});
