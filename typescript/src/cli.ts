#!/usr/bin/env node
/** The command line: `credence verify --jsonl`. */

import { once } from "node:events";

import { lines } from "./lines.js";
import { answerLine } from "./verify.js";

const USAGE = `Usage: credence verify --jsonl

Reads cases from standard input, one JSON object on each line, and writes one answer on each line. A line that is not a
case is denied and named on standard error; the exit code is then 2.`;

process.exitCode = await main(process.argv.slice(2));

async function main(options: readonly string[]): Promise<number> {
  if (options.includes("--help") || options.includes("-h")) {
    process.stdout.write(`${USAGE}\n`);
    return 0;
  }
  if (options.length !== 2 || options[0] !== "verify" || options[1] !== "--jsonl") {
    process.stderr.write(`${USAGE}\n`);
    return 2;
  }
  process.stdout.on("error", () => process.exit(1));
  let malformed = 0;
  for await (const { number, text } of lines(process.stdin)) {
    const { verdict, notes, isCase } = answerLine(text);
    for (const note of notes) process.stderr.write(`line ${String(number)}: ${note}\n`);
    if (!isCase) malformed += 1;
    if (!process.stdout.write(`${verdict}\n`)) await once(process.stdout, "drain");
  }
  if (malformed === 0) return 0;
  const which = malformed === 1 ? "1 line is not a case and was" : `${String(malformed)} lines are not cases and were`;
  process.stderr.write(`credence: ${which} answered with deny; fix the errors above\n`);
  return 2;
}
