// An MCP server on version 2 of the official TypeScript SDK that writes down what it runs.
//
// Usage: node server.mjs PORT LOG stateless|sessions. Stateless, the SDK's handler reads each request. With sessions,
// this program parses the bodies before, as servers with express.json() do.

import { AsyncLocalStorage } from 'node:async_hooks';
import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler, fromJsonSchema, isInitializeRequest } from '@modelcontextprotocol/server';
import { line } from './record.mjs';
import { DECOYS, PROMPTS, RESOURCES, TOOLS } from './tools.mjs';

const [port, log, kind] = process.argv.slice(2);
// The SDK warns about the names of decoys, for each request again.
console.warn = () => {};

/** The headers of the request that is being served. */
const headers = new AsyncLocalStorage();

const ran = (call) => appendFileSync(log, line(headers.getStore() ?? {}, call));

const tools = Object.entries({ ...TOOLS, ...Object.fromEntries(DECOYS.map((name) => [name, TOOLS.pay])) })
  .map(([name, schema]) => ({ name, read: Object.keys(schema.properties), inputSchema: fromJsonSchema(schema) }));

function newServer() {
  const server = new McpServer({ name: 'soak', version: '1.0.0' });
  for (const { name, read, inputSchema } of tools) {
    server.registerTool(name, { inputSchema }, (args) => {
      // A tool reads its arguments by name, and would also find inherited ones.
      const found = read.filter((one) => args[one] !== undefined).map((one) => [one, args[one]]);
      ran({ method: 'tools/call', name, args, read: Object.fromEntries(found) });
      return { content: [{ type: 'text', text: 'done' }] };
    });
  }
  for (const uri of RESOURCES) {
    server.registerResource(uri, uri, {}, ({ href }) => {
      ran({ method: 'resources/read', args: { uri: href } });
      return { contents: [{ uri: href, text: 'text' }] };
    });
  }
  for (const name of PROMPTS) {
    server.registerPrompt(name, {}, () => {
      ran({ method: 'prompts/get', args: { name } });
      return { messages: [{ role: 'user', content: { type: 'text', text: 'hello' } }] };
    });
  }
  server.server.fallbackRequestHandler = async ({ method, params: args = {} }) => {
    ran({ method, args });
    return {};
  };
  server.server.fallbackNotificationHandler = async ({ method, params: args = {} }) => ran({ method, args });
  return server;
}

const sessions = new Map();

async function serveInSession(request, response) {
  const body = request.method === 'POST' ? await readJson(request) : undefined;
  const id = request.headers['mcp-session-id'];
  let transport = sessions.get(id);
  if (!transport && !id && isInitializeRequest(body)) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (begun) => sessions.set(begun, transport),
    });
    transport.onclose = () => sessions.delete(transport.sessionId);
    await newServer().connect(transport);
  }
  if (transport) return transport.handleRequest(request, response, body);
  response.writeHead(id ? 404 : 400).end();
}

async function readJson(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    return undefined;
  }
}

const serve = kind === 'sessions' ? serveInSession : toNodeHandler(createMcpHandler(newServer));

createServer((request, response) => headers.run(request.headers, async () => {
  // Routers compare paths in this way by default.
  if (!/^\/mcp\/?(\?|$)/i.test(request.url)) return response.writeHead(404).end();
  try {
    await serve(request, response);
  } catch (error) {
    console.error(error);
    if (!response.headersSent) response.writeHead(500).end();
  }
})).listen(Number(port), '127.0.0.1');
