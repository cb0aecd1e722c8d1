// The protected service: MCP servers, and elsewhere an answer with the identity headers that it received.

import { createServer } from 'node:http';
import { once } from 'node:events';
import { NodeStreamableHTTPServerTransport } from '@modelcontextprotocol/node';
import { McpServer, fromJsonSchema } from '@modelcontextprotocol/server';
import * as shop from './shop.mjs';

export async function startService() {
  const server = createServer((request, response) => {
    handlerOf(request)(request, response).catch((error) => response.writeHead(500).end(String(error)));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { port: server.address().port, stop: () => server.closeAllConnections() ?? server.close() };
}

function handlerOf(request) {
  if (shop.isFor(request)) return shop.serve;
  return new URL(request.url, 'http://service').pathname.endsWith('/mcp') ? serveMcp : echo;
}

async function echo(request, response) {
  const own = Object.entries(request.headers).filter(([name]) => SHOWN.test(name));
  response.setHeader('content-type', 'application/json').end(JSON.stringify(Object.fromEntries(own)));
}

/** A server for each request: without sessions, as the SDK's documentation has it. */
async function serveMcp(request, response) {
  const server = new McpServer({ name: 'orders', version: '1.0.0' });
  const { [AGENT]: agent, [SUBJECT]: subject } = request.headers;
  const inputSchema = fromJsonSchema({ type: 'object', properties: {} });
  server.registerTool('whoami', { description: 'Names the caller.', inputSchema }, () => ({
    content: [{ type: 'text', text: JSON.stringify({ agent, subject }) }],
  }));
  const transport = new NodeStreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  await server.connect(transport);
  await transport.handleRequest(request, response);
}

const SHOWN = /^(x-delegation-.*|authorization|dpop)$/;
const AGENT = 'x-delegation-agent';
const SUBJECT = 'x-delegation-subject';
