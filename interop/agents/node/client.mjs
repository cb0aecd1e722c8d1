// An agent with version 2 of MCP's TypeScript SDK, unmodified. It answers each line of JSON with one. The first line
// has { version }, and either { url } or { command, args }.

import { closeSync, openSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const STATELESS = '2026-07-28';
let client;

async function connect({ version, url, command, args }) {
  client = new Client({ name: 'agent', version: '1.0.0' }, version === STATELESS
    ? { versionNegotiation: { mode: 'auto' } }
    : { versionNegotiation: { mode: 'legacy' }, supportedProtocolVersions: [version] });
  await client.connect(url
    ? new StreamableHTTPClientTransport(new URL(url))
    : new StdioClientTransport({ command, args }));
}

const ACTIONS = {
  version: () => client.getNegotiatedProtocolVersion(),
  list: async () => (await client.listTools()).tools.map(({ name }) => name),
  call: async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text,
  uid: () => process.getuid(),
  open(path) {
    try {
      closeSync(openSync(path));
      return 'opened';
    } catch ({ code }) {
      return code;
    }
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  const [action, ...args] = Array.isArray(request) ? request : [];
  try {
    const ok = await (action ? ACTIONS[action](...args) : connect(request));
    console.log(JSON.stringify({ ok: ok ?? null }));
  } catch (error) {
    console.log(JSON.stringify({ error: [error.message, JSON.stringify(error.data), error.cause?.message].join(' ') }));
  }
}
await client?.close();
process.exit();
