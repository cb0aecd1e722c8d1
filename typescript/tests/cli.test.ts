/** `credence verify --jsonl`, as the command line tool answers it. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const CLI = fileURLToPath(new URL("../dist/cli.js", import.meta.url));

function start(...options: string[]) {
  return spawn(process.execPath, [CLI, ...options]);
}

async function run(input: string | Buffer, ...options: string[]) {
  const child = start(...options);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  const [code] = (await once(child, "close")) as [number];
  return { code, stdout, stderr };
}

const CASE = '"anchors":[],"chain":["x"],"tool":"t","now":1,"audience":[]';

test("each line is answered, in order, with its id as it was written", async () => {
  const { code, stdout, stderr } = await run(
    `\ufeff{"id":1.50,${CASE}}\n\n  \r\n{"id":"a,\\"notes\\":[",${CASE}}`,
    "verify",
    "--jsonl",
  );
  assert.equal(code, 0, stderr);
  const [one, two, none] = stdout.split("\n");
  assert.match(one ?? "", /^\{"id":1\.50,"decision":"deny","step":"2c"/);
  assert.match(two ?? "", /^\{"id":"a,\\"notes\\":\[","decision":"deny"/);
  assert.equal(none, "");
});

test("each answer is written before the next line is read", async () => {
  const child = start("verify", "--jsonl");
  const answers = createInterface(child.stdout)[Symbol.asyncIterator]();
  for (const id of [1, 2, 3]) {
    child.stdin.write(`{"id":${String(id)},${CASE}}\n`);
    assert.equal((JSON.parse(String((await answers.next()).value)) as { id: number }).id, id);
  }
  child.stdin.end();
  const [code] = (await once(child, "close")) as [number];
  assert.equal(code, 0);
});

test("a line that is no case is denied, named, and the exit code is 2", async () => {
  const { code, stdout, stderr } = await run(`\nhello\n{"id":1,${CASE}}\n`, "verify", "--jsonl");
  assert.equal(code, 2);
  assert.equal(stdout.split("\n").length, 3);
  assert.match(stderr, /^line 2: not a case: /);
  assert.match(stderr, /1 line is not a case/);
});

test("a line that is too long is denied, and the next one is answered", async () => {
  const long = Buffer.alloc((16 << 20) + 10, "x");
  const { code, stdout } = await run(Buffer.concat([long, Buffer.from(`\n{"id":7,${CASE}}\n`)]), "verify", "--jsonl");
  assert.equal(code, 2);
  const [one, two] = stdout.split("\n");
  assert.match(one ?? "", /longer than 16777216 bytes/);
  assert.match(two ?? "", /^\{"id":7,/);
});

test("wrong usage is named", async () => {
  const { code, stderr } = await run("", "verify");
  assert.equal(code, 2);
  assert.match(stderr, /Usage: credence verify --jsonl/);
  assert.equal((await run("", "--help")).code, 0);
});
