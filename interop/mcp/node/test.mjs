// MCP's conformance suite and clients of the official SDKs, unmodified, at the real filter. The last line of output is
// a JSON object of counts.
//
// Environment: CREDENCE_BIN, CREDENCE_WASM, CREDENCE_ENVOY; CREDENCE_ROOT, the repository; CREDENCE_MCP_PYTHON and
// CREDENCE_MCP_PYTHON1, environments with version 2 and version 1 of the Python SDK.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts, start, until } from '../../oauth/node/processes.mjs';
import { CLIENTS } from './clients.mjs';
import { compare } from './conformance.mjs';
import { installation } from './credence.mjs';
import { follow } from './evidence.mjs';
import { testInspector } from './inspector.mjs';
import { failed, hasFailed, printCounts } from './report.mjs';
import { testClients, testFallback } from './sdks.mjs';
import { PREFIX, PROMPT, READ, SESSIONS, STATELESS, startStack } from './stack.mjs';

const { CREDENCE_BIN, CREDENCE_WASM, CREDENCE_ENVOY, CREDENCE_ROOT: root } = process.env;
const programs = { credence: CREDENCE_BIN, wasm: CREDENCE_WASM, envoy: CREDENCE_ENVOY, root };
const folder = mkdtempSync(join(tmpdir(), 'credence-mcp-'));

async function main() {
  const [port, http, grpc, ...others] = await freePorts(5);
  const credence = installation({ program: programs.credence, folder, http });
  const servers = await Promise.all([
    startServer('typescript', process.execPath, join(import.meta.dirname, 'everything.mjs'), others[0]),
    startServer('python', join(process.env.CREDENCE_MCP_PYTHON, 'bin/python'),
      join(root, 'interop/mcp/python/everything.py'), others[1]),
  ]);
  for (const server of servers) server.evidence = follow({ credence, log: server.log });
  const { origin } = await startStack({ programs, folder, credence, servers, ports: { port, http, grpc } });
  const here = { credence, origin, servers, folder };

  for (const { name, url, evidence, grant } of servers) {
    for (const version of [STATELESS, SESSIONS.at(-1)]) {
      const through = `${origin}/granted/${version}/${name}/mcp`;
      await compare({ name, version, direct: url, through, between: evidence.begin, folder });
      const rule = `granted-${version}-${name}`;
      await evidence.compare(`conformance of ${name}, ${version}`, { rule, delegation: grant });
    }
  }
  await testFallback(here);
  await testClients(here);
  await testInspector(here);
}

/** An MCP server, and the tools that delegations have for what it offers. */
async function startServer(name, program, file, port) {
  const log = join(folder, `${name}.jsonl`);
  const child = start(program, [file, port, log], join(folder, `${name}.log`));
  const url = `http://127.0.0.1:${port}/mcp`;
  const client = await until(name, () => CLIENTS[0].open({ url, version: STATELESS }), child);
  const tools = (await client.list()).map((tool) => PREFIX + tool);
  await client.close();
  return { name, port, url, log, tools: [...tools, READ, PROMPT] };
}

await main().catch(failed);
if (hasFailed()) console.log(`The output of the programs is in ${folder}.`);
else rmSync(folder, { recursive: true });
printCounts();
process.exit(hasFailed() ? 1 : 0);
