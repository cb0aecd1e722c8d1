// The rules in front of the servers, as the filter gets them and as the judge knows them.

import { AUDIENCE, ISSUER } from '../credence.mjs';
import { SESSIONS, STATELESS } from '../stack.mjs';
import { PREFIX, PROMPT, READ } from './grants.mjs';

/** Of the rule `named`: what tools are called in delegations. It exchanges two. */
const NAMED = { pay: 'pay', set: 'set', note: 'caf\u00e9', 'caf\u00e9': 'note' };

/** Methods that any valid delegation may use. */
const OPEN = [
  'GET', 'DELETE', 'responses', 'initialize', 'server/discover', 'ping', 'tools/list', 'notifications/initialized',
  'notifications/cancelled',
];

/** The tool of a delegation that this tool of a server is, under a rule; undefined if it is none. */
export function toolOf(rule, name) {
  if (rule !== 'named') return PREFIX + name;
  return Object.hasOwn(NAMED, name) ? PREFIX + NAMED[name] : undefined;
}

/** What a method needs under every rule: `open`, a `tool`, or undefined if it is not allowed. */
export function accessOf(method) {
  if (OPEN.includes(method)) return { open: true };
  return { 'resources/read': { tool: READ }, 'prompts/get': { tool: PROMPT } }[method];
}

const METHODS = [...OPEN, 'resources/read', 'prompts/get'];

/** Whether a message may present the delegation under a rule. */
export const readsMeta = (rule) => rule !== 'named';

/** The rules, and how the path of each server begins under them. */
export const RULES = { plain: '', proven: '/proven', named: '/named' };

/** The configuration of the filter. */
export function pluginConfig({ jwk, logId, servers }) {
  const methods = Object.fromEntries(METHODS.map((method) => [method, accessOf(method)]));
  const tools = (rule) => (rule === 'named'
    ? { names: Object.fromEntries(Object.keys(NAMED).map((name) => [name, toolOf(rule, name)])) }
    : { prefix: PREFIX });
  return {
    audience: [AUDIENCE],
    trust_anchors: [{ issuer: ISSUER, jwk, asserts_subjects: true }],
    control_plane: { cluster: 'credence', log_id: logId },
    // Denials are no part of the comparison.
    audit: { arguments: 'full', denials_per_second: 1 },
    rules: servers.flatMap(({ name }) => [
      ...Object.entries(RULES).map(([rule, prefix]) => ({
        name: `${rule}-${name}`,
        match: { path: `${prefix}/${name}/mcp` },
        proof: rule === 'proven' ? 'pop' : 'none',
        mcp: {
          versions: [...SESSIONS, STATELESS], tools: tools(rule), methods, hide_ungranted: true,
          delegation_in_meta: readsMeta(rule),
        },
        ignore_members: ['/params/inputResponses', '/params/requestState'],
      })),
      // A neighbour on the same server that needs no delegation.
      { name: `open-${name}`, match: { path: `/open/${name}/**` }, public: true },
    ]),
  };
}
