// Prints a line for each case, and counts them.

import { isDeepStrictEqual } from 'node:util';

const counts = { clients: 0, cases: 0, denied: 0, revoked: 0, key_reads: 0, failed: 0 };

/** One case of a client. `kind`: `allowed`, `denied`, `revoked`, `proofs` or `keys`. */
export async function testCase(kind, client, what, test) {
  counts.cases += 1;
  try {
    await test();
    if (kind in counts) counts[kind] += 1;
    console.log(`ok      ${kind.padEnd(7)}  ${client}: ${what}`);
  } catch (error) {
    console.log(`FAILED  ${kind.padEnd(7)}  ${client}: ${what}`);
    failed(error);
  }
}

/** Counts a failure, also one outside of the cases. */
export function failed(problem) {
  counts.failed += 1;
  console.log(String(problem.stack ?? problem).replace(/^/gm, '        '));
}

export const count = (name, more = 1) => (counts[name] += more);

export const hasFailed = () => counts.failed > 0;

/** Prints the last line of output. */
export const printCounts = () => console.log(JSON.stringify(counts));

export function expect(found, expected) {
  if (isDeepStrictEqual(found, expected)) return;
  throw new Error(`expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`);
}

/** Fails unless the text has all these parts. */
export function expectParts(text, ...parts) {
  const missing = parts.filter((part) => !text.includes(part));
  if (missing.length) throw new Error(`expected ${JSON.stringify(missing)} in: ${text}`);
}
