// Names that tricks put in place of others.

import { DECOYS, PROMPTS, RESOURCES, TOOLS } from '../tools.mjs';

/** Names of tools, some of which no server has. */
export const NAMES = [
  ...Object.keys(TOOLS), ...DECOYS, '', 'constructor', '__proto__', 'toString', 'pay\n', 'other', '*', 'pay,set',
  'read', 'x'.repeat(300),
];

/** Methods, and texts that some reader takes for one. */
export const METHODS = [
  'tools/call', 'tools/list', 'initialize', 'ping', 'resources/read', 'prompts/get', 'server/discover',
  'TOOLS/CALL', 'tools/call ', 'tools/call\u0000', 'tools//call', '/tools/call', 'tools.call', 'tools/Call',
  'tools/call/x', 'notifications/tools/call', 'notifications/initialized', 'notifications/cancelled',
  'notifications/roots/list_changed', 'notifications/secret', 'soak/secret', 'completion/complete', 'logging/setLevel',
  'resources/subscribe', 'subscriptions/listen', 'tasks/get', 'sampling/createMessage', 'elicitation/create',
  'rpc.discover', 'responses', 'GET', '', '*',
];

/** Addresses of resources, and others that some reader takes for them. */
export const URIS = [
  ...RESOURCES, 'TEST://doc/secret', 'test://DOC/secret', 'test://doc/./secret', 'test://doc/a/../secret',
  'test://doc/%73ecret', 'test://doc/secret#x', 'test://doc/secret?x', 'test://doc/secret/', ' test://doc/secret',
  'test://doc/secret ', 'test:doc/a', 'test://user@doc/secret', 'test://doc:80/a', 'test://doc/se\ncret', '',
];

export const PROMPT_NAMES = [...PROMPTS, 'GREET', 'greet ', 'constructor', ''];

/** A call that no delegation grants. */
export const FORBIDDEN = { name: 'drop', arguments: { amount: 1, currency: 'EUR', account: 'a1' } };
