// What each client does, and what must come of it.

import { isDeepStrictEqual } from 'node:util';
import { USER } from './clients.mjs';
import { PREFIX, PROMPT, READ, STATELESS } from './stack.mjs';

const exact = (value) => ({ constraint_type: 'exact', value });

/** What the clients are granted: not all tools, and not all arguments of them. */
export const GRANT = {
  [`${PREFIX}test_x_mcp_header`]: { region: { constraint_type: 'one_of', values: ['eu', 'us'] } },
  [`${PREFIX}test_tool_with_progress`]: {},
  [`${PREFIX}test_elicitation`]: {},
  [`${PREFIX}test_input_required_result_elicitation`]: {},
  [`${PREFIX}test_trigger_tool_change`]: {},
  [READ]: { uri: exact('test://static-text') },
  [PROMPT]: { name: exact('test_simple_prompt') },
};

const TOOL = 'test_x_mcp_header';
const [QUESTION, OLD_QUESTION] = ['test_input_required_result_elicitation', 'test_elicitation'];
const denied = (reason, more) => ({ status: 403, code: 403, reason, ...more });

/**
 * Each step has what a client does, and either its result or what is said about the request that is `denied`. `ran` has
 * the tools of delegations that the server then ran, and their arguments; `method` is one that the ledger must have as
 * allowed. `only` says for which versions the step is.
 */
export const STEPS = [
  {
    name: 'lists the tools',
    act: async (client) => (await client.list()).includes(TOOL),
    result: true,
    method: 'tools/list',
  },
  {
    name: 'calls a tool with an argument that is allowed',
    act: async (client) => (await client.call(TOOL, { region: 'eu' })).text,
    result: 'region=eu',
    ran: [[PREFIX + TOOL, { region: 'eu' }]],
  },
  {
    name: 'is denied another value of the argument',
    act: (client) => client.call(TOOL, { region: 'cn' }),
    denied: denied('argument_not_allowed', { argument: 'region' }),
  },
  {
    name: 'is denied another argument',
    act: (client) => client.call(TOOL, { region: 'eu', level: 1 }),
    denied: denied('argument_not_granted', { argument: 'level' }),
  },
  {
    name: 'is denied another tool',
    act: (client) => client.call('test_simple_text', {}),
    denied: denied('tool_not_granted'),
  },
  {
    name: 'calls the tool again',
    act: async (client) => (await client.call(TOOL, { region: 'us' })).text,
    result: 'region=us',
    ran: [[PREFIX + TOOL, { region: 'us' }]],
  },
  {
    name: 'gets the progress of a call',
    act: async (client) => (await client.call('test_tool_with_progress', {})).progress,
    result: [0, 50, 100],
    ran: [[`${PREFIX}test_tool_with_progress`, {}]],
  },
  {
    name: 'answers a question in a result of the server',
    only: (version) => version === STATELESS,
    act: async (client) => (await client.call(QUESTION, {})).text,
    result: `Hello, ${USER.name}!`,
    ran: Array(2).fill([PREFIX + QUESTION, {}]),
  },
  {
    name: 'answers a request of the server',
    only: (version) => version !== STATELESS,
    act: async (client) => (await client.call(OLD_QUESTION, { message: 'Which colour?' })).text,
    result: `Elicitation completed: action=accept, content={"response":"${USER.response}"}`,
    ran: [[PREFIX + OLD_QUESTION, { message: 'Which colour?' }]],
    method: 'responses',
  },
  {
    name: 'reads a resource',
    act: (client) => client.read('test://static-text'),
    result: 'This is the content of the static text resource.',
    ran: [[READ, { uri: 'test://static-text' }]],
  },
  {
    name: 'is denied another resource',
    act: (client) => client.read('test://watched-resource'),
    denied: denied('argument_not_allowed', { argument: 'uri' }),
  },
  {
    name: 'gets a prompt',
    act: (client) => client.prompt('test_simple_prompt'),
    result: 'This is a simple prompt for testing.',
    ran: [[PROMPT, { name: 'test_simple_prompt' }]],
  },
  {
    name: 'is denied another prompt',
    act: (client) => client.prompt('test_prompt_with_image'),
    denied: denied('argument_not_allowed', { argument: 'name' }),
  },
  {
    name: 'is denied a method that the rule does not name',
    act: (client) => client.complete(),
    denied: { code: -32_601, reason: 'mcp_method_not_allowed', argument: 'completion/complete' },
  },
  {
    name: 'sends a notification',
    only: (version) => version !== STATELESS,
    act: (client) => client.notify(),
    method: 'notifications/roots/list_changed',
  },
  {
    name: 'subscribes to changes, and gets one',
    only: (version) => version === STATELESS,
    act: (client) => client.subscribe('test_trigger_tool_change'),
    method: 'subscriptions/listen',
    ran: [[`${PREFIX}test_trigger_tool_change`, {}]],
  },
];

/** With no delegation, and with one that is revoked. */
export const MISSING = { status: 401, code: 401, reason: 'delegation_missing' };
export const REVOKED = { status: 401, code: 401, reason: 'revoked_delegation' };

/** Fails unless the action gives this result, if there is one, or is denied in this way. */
export async function perform(action, { denied, result }) {
  if (denied) return expectDenial(action, denied);
  const found = await action();
  if (result !== undefined) expect(found, result);
}

export function expect(found, expected) {
  if (isDeepStrictEqual(found, expected)) return;
  throw new Error(`expected ${JSON.stringify(expected)}, found ${JSON.stringify(found)}`);
}

async function expectDenial(action, expected) {
  const error = await action().then((found) => new Error(`it was allowed: ${JSON.stringify(found)}`), (error) => error);
  if (!error.denial) throw error;
  const { status, body } = error.denial;
  const { code, data } = body.error ?? {};
  const found = { jsonrpc: body.jsonrpc, status, code, reason: data?.reason, argument: data?.argument };
  const all = { jsonrpc: '2.0', ...expected };
  const differs = Object.keys(all).filter((name) => found[name] !== all[name]);
  if (differs.length) throw new Error(`expected ${JSON.stringify(all)}, found ${JSON.stringify(error.denial)}`);
}
