// An MCP server on the official TypeScript SDK that speaks every version with Streamable HTTP.
//
// Usage: node everything.mjs PORT LOG. LOG gets one line of JSON for each tool call, prompt and read that ran.

import { randomUUID } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { NodeStreamableHTTPServerTransport, localhostHostValidation, toNodeHandler } from '@modelcontextprotocol/node';
import { classifyInboundRequest, createMcpHandler, isInitializeRequest } from '@modelcontextprotocol/server';
import { createServer } from './features.mjs';

const [port, log] = process.argv.slice(2);
const sessions = new Map();

/** The server of 2026-07-28: a new one for each request. */
const stateless = createMcpHandler(() => newServer());
const serveStateless = toNodeHandler(stateless);

function newServer() {
  return createServer({
    record: (ran) => appendFileSync(log, `${JSON.stringify(ran)}\n`),
    notify: {
      toolsChanged: () => stateless.notify.toolsChanged(),
      promptsChanged: () => stateless.notify.promptsChanged(),
    },
    closeStream: ({ sessionId, mcpReq }) => sessions.get(sessionId)?.closeSSEStream(mcpReq.id),
  });
}

async function serve(request, response) {
  if (!isLocal(request, response)) return;
  const body = request.method === 'POST' ? await readJson(request) : undefined;
  const inbound = request.method === 'POST' && classifyInboundRequest({
    httpMethod: request.method,
    protocolVersionHeader: request.headers['mcp-protocol-version'],
    mcpMethodHeader: request.headers['mcp-method'],
    body,
  });
  if (inbound && inbound.kind !== 'legacy') return serveStateless(request, response, body);
  const transport = await session(request, body);
  if (transport) return transport.handleRequest(request, response, body);
  const [status, message] = request.headers['mcp-session-id'] ? [404, 'no such session'] : [400, 'no session'];
  answer(response, status, -32_000, message);
}

/** The session of a request of an older version; a new one if the request begins it. */
async function session(request, body) {
  const id = request.headers['mcp-session-id'];
  if (id || !isInitializeRequest(body)) return sessions.get(id);
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: eventStore(),
    retryInterval: 100,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  transport.onclose = () => sessions.delete(transport.sessionId);
  await newServer().connect(transport);
  return transport;
}

/** The events of one session, so that a client can continue a stream that broke. */
function eventStore() {
  const events = [];
  return {
    async storeEvent(streamId, message) {
      events.push({ streamId, message });
      return String(events.length);
    },
    async replayEventsAfter(lastId, { send }) {
      const { streamId } = events[Number(lastId) - 1];
      for (let id = Number(lastId) + 1; id <= events.length; id += 1) {
        const event = events[id - 1];
        if (event.streamId === streamId && Object.keys(event.message).length) await send(String(id), event.message);
      }
      return streamId;
    },
  };
}

const isLocal = localhostHostValidation();

async function readJson(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    return JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    return undefined;
  }
}

function answer(response, status, code, message) {
  const body = { jsonrpc: '2.0', id: null, error: { code, message } };
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

createHttpServer((request, response) => {
  serve(request, response).catch((error) => {
    console.error(error);
    if (!response.headersSent) answer(response, 500, -32_603, 'internal error');
  });
}).listen(Number(port), '127.0.0.1');
