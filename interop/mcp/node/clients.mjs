// Clients of the official SDKs, unmodified: their fetch adds headers, and remembers what was answered.
//
// Each is opened with { url, version, delegation, proofs } and offers the same actions; `proofs` has the program and
// the key for proofs, if requests need them. An action that fails is an error with `denial`: the HTTP status and the
// body that were answered.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as OldTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CallToolResultSchema, ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { headers } from './prove.mjs';
import { pythonClient } from './python.mjs';
import { SESSIONS, STATELESS } from './stack.mjs';

const INFO = { name: 'agent', version: '1.0.0' };
const CAPABILITIES = { elicitation: {}, roots: { listChanged: true } };

/** What a user answers to a question. */
export const USER = { response: 'blue', name: 'Ada' };

/** Version 2 of the TypeScript SDK. */
async function openClient({ url, version, ...credentials }) {
  const seen = observe(headers(credentials));
  const client = new Client(INFO, {
    capabilities: CAPABILITIES,
    ...(version === STATELESS
      ? { versionNegotiation: { mode: 'auto' } }
      : { versionNegotiation: { mode: 'legacy' }, supportedProtocolVersions: [version] }),
  });
  client.setRequestHandler('elicitation/create', accept);
  client.setRequestHandler('roots/list', () => ({ roots: [] }));
  await seen.during(() => client.connect(new StreamableHTTPClientTransport(new URL(url), { fetch: seen.fetch })));
  return {
    ...actions(client, seen),
    call: (name, args) => seen.during(async () => {
      const progress = [];
      const onprogress = (step) => progress.push(step.progress);
      const result = await client.callTool({ name, arguments: args }, { onprogress });
      return { text: result.content[0].text, isError: result.isError, progress };
    }),
    /** Opens a subscription, calls this tool, and waits for the change that it causes. */
    subscribe: (tool) => seen.during(async () => {
      const changed = new Promise((done) =>
        client.setNotificationHandler('notifications/tools/list_changed', () => done()));
      const subscription = await client.listen({ toolsListChanged: true });
      await client.callTool({ name: tool, arguments: {} });
      await changed;
      await subscription.close();
    }),
  };
}

/** Version 1 of the TypeScript SDK, which speaks the older versions. */
async function openOldClient({ url, version, ...credentials }) {
  const seen = observe(headers(credentials));
  const client = new OldClient(INFO, { capabilities: CAPABILITIES });
  client.setRequestHandler(ElicitRequestSchema, accept);
  await seen.during(() => client.connect(new OldTransport(new URL(url), { fetch: seen.fetch })));
  return {
    ...actions(client, seen),
    call: (name, args) => seen.during(async () => {
      const progress = [];
      const onprogress = (step) => progress.push(step.progress);
      const result = await client.callTool({ name, arguments: args }, CallToolResultSchema, { onprogress });
      return { text: result.content[0].text, isError: result.isError, progress };
    }),
  };
}

/** What both versions of the SDK do in the same way. */
function actions(client, seen) {
  return {
    list: () => seen.during(async () => (await client.listTools()).tools.map(({ name }) => name)),
    read: (uri) => seen.during(async () => (await client.readResource({ uri })).contents[0].text),
    prompt: (name) => seen.during(async () => (await client.getPrompt({ name })).messages[0].content.text),
    complete: () => seen.during(() => client.complete({
      ref: { type: 'ref/prompt', name: 'test_prompt_with_arguments' }, argument: { name: 'arg1', value: 'a' },
    })),
    notify: () => seen.during(() => client.sendRootsListChanged()),
    close: () => client.close(),
  };
}

function accept({ params: { requestedSchema } }) {
  const names = Object.keys(requestedSchema.properties);
  return { action: 'accept', content: Object.fromEntries(names.map((name) => [name, USER[name]])) };
}

/** A fetch that adds headers, and the last denial that it saw. */
function observe(credentialsOf) {
  let denial;
  return {
    fetch: async (address, init = {}) => {
      const all = new Headers(init.headers);
      const more = await credentialsOf(init.method ?? 'GET', init.body);
      for (const [name, value] of Object.entries(more)) all.set(name, value);
      const response = await fetch(address, { ...init, headers: all });
      // The servers of this test refuse nothing in this way.
      if (response.status >= 400) denial = { status: response.status, text: await response.clone().text() };
      return response;
    },
    async during(action) {
      denial = undefined;
      try {
        return await action();
      } catch (error) {
        throw Object.assign(error, { denial: denial && { status: denial.status, body: parsed(denial.text) } });
      }
    },
  };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const NEWEST_SESSIONS = SESSIONS.at(-1);

/** Every client, with the versions that it speaks here. `mcp` is Python's. */
export const CLIENTS = [
  { name: '@modelcontextprotocol/client', open: openClient, versions: [...SESSIONS, STATELESS] },
  { name: '@modelcontextprotocol/sdk', open: openOldClient, versions: [NEWEST_SESSIONS] },
  { name: 'mcp 2', open: pythonClient('client.py', 'CREDENCE_MCP_PYTHON'), versions: [NEWEST_SESSIONS, STATELESS] },
  { name: 'mcp 1', open: pythonClient('client_1.py', 'CREDENCE_MCP_PYTHON1'), versions: [NEWEST_SESSIONS] },
];
