/** The programs in the README, each run as it is printed there. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { createMcpHandler, McpServer } from "@modelcontextprotocol/server";
import { Delegation, PrivateKey, Service } from "credence-agent";
import { readKeyFile } from "credence-agent/node";
import * as z from "zod";

import { decide, document, mint, nodeHandler, TOOLS } from "./support.js";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "credence-"));
const { origin, proofs } = await service();

async function run(name: string): Promise<string> {
  const env = { ...process.env, SERVICE: origin, PASSPHRASE: "correct horse", NODE_NO_WARNINGS: "1" };
  const { stdout } = await promisify(execFile)(process.execPath, [join(root, "examples", name)], { cwd: folder, env });
  return stdout;
}

/** A service that publishes its rules, has an MCP server, and keeps the decisions about its charges. */
async function service(): Promise<{ origin: string; proofs: string[] }> {
  const decisions: string[] = [];
  const mcp = nodeHandler(
    createMcpHandler(() => {
      const server = new McpServer({ name: "weather", version: "1.0.0" });
      server.registerTool("get_forecast", { inputSchema: z.object({ city: z.string() }) }, ({ city }) => ({
        content: [{ type: "text", text: `Rain in ${city}` }],
      }));
      return server;
    }),
  );
  let rules = "";
  const server = createServer((request, response) => {
    if (request.url === "/.well-known/credence-agent-rules") response.end(rules);
    else if (request.url === "/mcp") mcp(request, response);
    else {
      const { method = "", url = "", headers } = request;
      const args = { account: "a1", amount: 15 };
      decisions.push(decide({ method, url, headers, body: "" }, "payments.charge", args, undefined, here));
      response.end("done");
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const here = `http://127.0.0.1:${String((server.address() as AddressInfo).port)}`;
  after(() => {
    server.closeAllConnections();
    server.close();
  });
  const weather = {
    name: "weather",
    match: { path: "/mcp" },
    mcp: {
      versions: ["2026-07-28"],
      tools: { prefix: "weather." },
      methods: { "server/discover": { open: true }, "tools/list": { open: true } },
    },
  };
  const written = JSON.parse(document({ audience: [here] })) as { rules: object[] };
  rules = JSON.stringify({ ...written, rules: [...written.rules, weather] });
  return { origin: here, proofs: decisions };
}

test("key.mjs, and a delegation for its key", async () => {
  const publicJwk = JSON.parse(await run("key.mjs")) as PrivateKey["publicJwk"];
  const key = await readKeyFile(join(folder, "agent.jwk"));
  assert.deepEqual(key.publicJwk, publicJwk);
  const tools = { ...TOOLS, "weather.get_forecast": { city: { constraint_type: "wildcard" } } };
  writeFileSync(join(folder, "delegation.txt"), `${await mint(key, { aud: origin }, tools)}\n`);
});

test("request.mjs", async () => {
  assert.equal(await run("request.mjs"), "15 200\n500 argument_not_allowed amount\n");
  assert.deepEqual(proofs.splice(0), ["allow"]);
});

test("derive.mjs", async () => {
  const worker = await PrivateKey.generate();
  writeFileSync(join(folder, "worker.pub"), JSON.stringify(worker.publicJwk));
  assert.match(await run("derive.mjs"), /^Delegation\(.*payments\.charge\)\n$/);
  const derived = Delegation.parse(readFileSync(join(folder, "worker-delegation.txt"), "utf8"));
  assert.equal(derived.holderThumbprint, worker.thumbprint);
});

test("passphrase.mjs", async () => {
  assert.match(await run("passphrase.mjs"), /^PrivateKey\(Ed25519, /);
});

test("signer.mjs", async () => {
  assert.equal(await run("signer.mjs"), "true\n");
});

test("undici.mjs", async () => {
  assert.equal(await run("undici.mjs"), "200\n");
  assert.deepEqual(proofs.splice(0), ["allow"]);
});

test("mcp.mjs", async () => {
  assert.equal(await run("mcp.mjs"), "Rain in Oslo\n");
});

test("ai.mjs", async () => {
  const { chargeTool } = (await import(join(root, "examples/ai.mjs"))) as {
    chargeTool: (service: Service, agent: object) => { execute: (input: object, details: object) => unknown };
  };
  const signer = await readKeyFile(join(folder, "agent.jwk"));
  const delegation = Delegation.parse(readFileSync(join(folder, "delegation.txt"), "utf8"));
  const tool = chargeTool(await Service.discover(origin), { delegation, signer });
  assert.equal(await tool.execute({ account: "a1", amount: 15 }, {}), 200);
  assert.throws(() => tool.execute({ account: "a1", amount: 101 }, {}), /argument_not_allowed/);
  assert.deepEqual(proofs.splice(0), ["allow"]);
});

test("the README has every example, as it is in its file, and no other program", () => {
  const readme = readFileSync(join(root, "README.md"), "utf8");
  const examples = readdirSync(join(root, "examples"));
  for (const name of examples) {
    const text = readFileSync(join(root, "examples", name), "utf8");
    assert.ok(
      readme.includes(`<!-- examples/${name} -->\n\n\`\`\`js\n${text}\`\`\`\n`),
      `${name}: run \`npm run readme\``,
    );
  }
  assert.equal(readme.match(/```js\n/g)?.length, examples.length);
  const others = [...readme.matchAll(/```(?:sh|text)\n([^]*?)```/g)].map(([, text]) => text);
  // The delegation, the output of request.mjs, and the command that the test of the packed package runs.
  assert.match(others.shift() ?? "", /^umask 077\ncredence mint .*--holder agent\.pub/);
  assert.deepEqual(others, [
    "15 200\n500 argument_not_allowed amount\n",
    "npx --no-install credence verify --jsonl < cases.jsonl\n",
  ]);
});
