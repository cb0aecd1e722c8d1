/** Failures of the Wasm module. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { InvalidInputError, ModuleError, Service } from "credence-agent";

import { AgentModule, agentModule } from "../dist/module.js";
import { agent, AUDIENCE, document } from "./support.js";

const REAL = new WebAssembly.Module(readFileSync(new URL("../dist/agent.wasm", import.meta.url)));

/** Exports what the agent's module does; `credence_answer` traps. */
const TRAPS = Uint8Array.from([
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00],
  // Types: (i32) -> i32 and () -> i32.
  ...[0x01, 0x0a, 0x02, 0x60, 0x01, 0x7f, 0x01, 0x7f, 0x60, 0x00, 0x01, 0x7f],
  ...[0x03, 0x04, 0x03, 0x00, 0x00, 0x01],
  ...[0x05, 0x03, 0x01, 0x00, 0x01],
  ...exportSection(),
  // Code: 0, unreachable, 0.
  ...[0x0a, 0x0f, 0x03, 0x04, 0x00, 0x41, 0x00, 0x0b, 0x03, 0x00, 0x00, 0x0b, 0x04, 0x00, 0x41, 0x00, 0x0b],
]);

function exportSection(): number[] {
  const exports: [string, number, number][] = [
    ["memory", 2, 0],
    ["credence_input", 0, 0],
    ["credence_answer", 0, 1],
    ["credence_answer_bytes", 0, 2],
  ];
  const entries = exports.flatMap(([name, kind, index]) => [name.length, ...Buffer.from(name), kind, index]);
  return [0x07, entries.length + 1, exports.length, ...entries];
}

test("after a trap, the instance is not used again", () => {
  let compile = () => new WebAssembly.Module(TRAPS);
  const module = new AgentModule(() => compile());
  assert.throws(() => module.answer({ verify: {} }), ModuleError);
  assert.equal(module.generation, 1);
  compile = () => REAL;
  assert.match(module.answer({ verify: {} }), /^\{"answer":/);
});

test("after a trap, services are opened again, each with its own rules", async () => {
  const { signer, delegation } = await agent();
  const named = (name: string) => {
    const rules = [{ name, match: { path: "/{item}" }, tool: "catalog.read", args: { item: { path: "item" } } }];
    return Service.fromDocument(AUDIENCE, document({ rules }));
  };
  const services = [named("one"), named("two")];
  // More memory than the module can have.
  const huge = { length: 2 ** 32 - 1024 } as Uint8Array;
  assert.throws(() => agentModule.answer({ verify: {} }, huge), ModuleError);
  const request = {
    method: "GET",
    url: new URL("/x", AUDIENCE),
    headers: [],
    hasBody: false,
    readBody: () => Promise.resolve(new Uint8Array()),
  };
  const authorized = services.reverse().map((service) => service.authorize(request, { delegation, signer }));
  assert.deepEqual(
    (await Promise.all(authorized)).map(({ rule }) => rule),
    ["two", "one"],
  );
});

test("an operation that is wrong does not harm the instance", () => {
  const module = new AgentModule(() => REAL);
  assert.throws(() => module.call({ unknown: {} }), InvalidInputError);
  assert.throws(() => module.call({ close: {} }), InvalidInputError);
  assert.equal(module.generation, 0);
});
