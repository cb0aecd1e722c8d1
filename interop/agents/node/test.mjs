// Unmodified clients act through `credence proxy`, as the user `nobody`. The last line of output is a JSON object of
// counts.
//
// Environment: CREDENCE_BIN, CREDENCE_WASM, CREDENCE_ENVOY; CREDENCE_ROOT, the repository; CREDENCE_AGENTS_PYTHON and
// CREDENCE_AGENTS_LANGGRAPH, the environments of the agents in Python; CREDENCE_STRACE, if it is installed.

import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freePorts } from '../../oauth/node/processes.mjs';
import { agents } from './agents.mjs';
import { CURL_CLIENTS, testCurl } from './curl.mjs';
import { testKeys } from './keys.mjs';
import { LANGGRAPH_CLIENTS, testLangGraph } from './langgraph.mjs';
import { MCP_CLIENTS, testMcp } from './mcp.mjs';
import { proxies } from './proxy.mjs';
import { failed, hasFailed, printCounts } from './report.mjs';
import { startStack, thumbprint } from './stack.mjs';

const { env } = process;
const python = (environment, file) =>
  [join(env[environment], 'bin/python'), [join(env.CREDENCE_ROOT, 'interop/agents', file)]];
const programs = {
  credence: env.CREDENCE_BIN, wasm: env.CREDENCE_WASM, envoy: env.CREDENCE_ENVOY, root: env.CREDENCE_ROOT,
  node: process.execPath,
  agents: {
    typescript: [process.execPath, [join(import.meta.dirname, 'client.mjs')]],
    python: python('CREDENCE_AGENTS_PYTHON', 'python/client.py'),
    langgraph: python('CREDENCE_AGENTS_LANGGRAPH', 'langgraph/graph.py'),
  },
};
const folder = mkdtempSync(join(tmpdir(), 'credence-agents-'));
// Agents may look around: the keys' own permissions protect them.
chmodSync(folder, 0o755);

async function main() {
  const [port, http, grpc, mcp, rest, ...others] = await freePorts(13);
  const stack = await startStack({ programs, folder, ports: { port, http, grpc, mcp, rest } });
  const { credence, origin, mint } = stack;
  const keys = ['holder.jwk', 'issuer.jwk', 'operator-token'].map((name) => join(folder, name));
  const proxy = proxies({ programs, folder, origin, holderKey: credence.holderKey });
  const here = {
    ...stack, programs, keys, proxy,
    agent: thumbprint(JSON.parse(readFileSync(credence.holderKey, 'utf8'))),
    ...agents({ folder, strace: env.CREDENCE_STRACE || undefined, keys }),
  };
  const granted = (clients) => Promise.all(clients.map(async (client) => ({ ...client, delegation: await mint() })));
  const listening = [];
  /** Where a client connects: to a reverse proxy of this service, or to a forward proxy. */
  const listen = (client, service) => {
    const address = `127.0.0.1:${others.pop()}`;
    listening.push({ ...client, settings: { listen: address, service } });
    return `http://${address}`;
  };
  /** The server that a client starts: it connects to the socket. */
  const stdio = async (client) => {
    const socket = await proxy.serveStdio(client, `${origin}/mcp`);
    return { command: 'socat', args: ['-t10', '-', `UNIX-CONNECT:${socket}`] };
  };

  const [reverse, forward, socket] = await granted(CURL_CLIENTS);
  reverse.base = listen(reverse, origin);
  Object.assign(forward, { base: origin, environment: { http_proxy: listen(forward) } });
  const path = join(folder, 'curl.sock');
  listening.push({ ...socket, settings: { listen: `unix:${path}`, service: origin } });
  Object.assign(socket, { base: 'http://localhost', options: ['--unix-socket', path] });
  const mcps = await granted(MCP_CLIENTS);
  for (const client of mcps) {
    const isHttp = client.transport === 'http';
    client.connection = isHttp ? { url: `${listen(client, origin)}/mcp` } : await stdio(client);
  }
  const [overHttp, overStdio] = await granted(LANGGRAPH_CLIENTS);
  overHttp.rest = { url: listen(overHttp, origin) };
  overHttp.mcp = { transport: 'streamable_http', url: `${overHttp.rest.url}/mcp` };
  overStdio.rest = { url: origin, proxy: listen(overStdio) };
  overStdio.mcp = { transport: 'stdio', ...await stdio(overStdio) };
  await proxy.serve(listening);

  await testKeys(here);
  for (const client of [reverse, forward, socket]) await testCurl(client, here);
  for (const client of mcps) await testMcp(client, here);
  for (const client of [overHttp, overStdio]) await testLangGraph(client, here);
}

await main().catch(failed);
if (hasFailed()) console.log(`The output of the programs is in ${folder}.`);
else rmSync(folder, { recursive: true });
printCounts();
process.exit(hasFailed() ? 1 : 0);
