// Prints what a run found.

import { shortened } from './checker.mjs';

/** Disagreements of each kind that are printed. */
const MOST_PRINTED = 5;

/** The share of each server's cases that must run. About a quarter does. */
const LEAST_RAN = 0.1;

/** Prints what the filter and the servers answered to each trick, to standard error. */
export function printTricks(answers) {
  for (const [trick, found] of [...answers].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const list = Object.entries(found).sort(([, a], [, b]) => b - a).map(([what, count]) => `${count} ${what}`);
    console.error(`${trick || 'all cases'}: ${list.join(', ')}`);
  }
}

export function printDisagreements({ check, caseOf, seed }) {
  const printed = {};
  for (const [key, problems] of check.disagreements) {
    for (const { kind } of problems) printed[kind] = (printed[kind] ?? 0) + 1;
    if (problems.every(({ kind }) => printed[kind] > MOST_PRINTED)) continue;
    for (const { kind, detail } of problems) console.log(`disagreement: ${kind}\n  ${detail}`);
    if (key >= 0) console.log(`  seed ${seed}, case ${key}\n${requestOf(caseOf(key))}`);
  }
}

/** A case's request. Texts in braces are delegations, sessions and proofs. */
function requestOf({ draft, tricks, proof }) {
  const head = [`${draft.httpMethod} ${draft.path}`, ...draft.headers.map((header) => header.join(': '))];
  const lines = [
    ...head.map((line) => printable(Buffer.from(line, 'latin1'))), `framing: ${JSON.stringify(draft.framing)}`,
    draft.body ? shortened(printable(draft.body)) : '(no body)',
  ];
  const made = `tricks: ${tricks.join(', ') || 'none'}; proof: ${shortened(JSON.stringify(proof))}`;
  return `  ${made}\n${lines.map((line) => `  | ${line}`).join('\n')}\n`;
}

/** Bytes as text: other than visible ASCII as \xNN. */
function printable(bytes) {
  const hex = (one) => `\\x${one.charCodeAt(0).toString(16).padStart(2, '0')}`;
  return bytes.toString('latin1').replace(/[^\x20-\x7e]/g, hex);
}

/** Prints the errors in Envoy's log, such as a crash of the filter. Returns whether there are any. */
export function printErrors(log) {
  const errors = log.split('\n').filter((line) => /^\[[^\]]*\]\[\d+\]\[(error|critical)\]/.test(line));
  for (const error of errors.slice(0, MOST_PRINTED)) console.error(shortened(error));
  return errors.length > 0;
}

/** Prints the last line. Returns whether all is as it should be. */
export function printResult({ check, counts, count, seed, seconds }) {
  const servers = Object.fromEntries([...counts.servers].sort().map(([name, { cases, allowed }]) =>
    [name, { cases, allowed, ...check.countsOf(name) }]));
  const few = Object.entries(servers).filter(([, { cases, ran }]) => ran < cases * LEAST_RAN).map(([name]) => name);
  if (few.length) console.error(`error: hardly any case ran on ${few.join(', ')}`);
  const all = Object.values(servers);
  const sum = (member) => all.reduce((total, server) => total + server[member], 0);
  const disagreements = check.disagreements.size;
  const [allowed, ran, kinds] = [sum('allowed'), check.ran.size, check.byKind()];
  console.log(JSON.stringify({ cases: count, allowed, ran, disagreements, kinds, seed, seconds, servers }));
  return !disagreements && !few.length;
}
