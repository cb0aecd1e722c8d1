// An MCP server: a shop. With the filter's rule that protects it, and what Credence's issuer lets people grant of it.

import { toNodeHandler } from '@modelcontextprotocol/node';
import { McpServer, createMcpHandler, fromJsonSchema } from '@modelcontextprotocol/server';

const PATH = '/shop/mcp';

/** The resource, as clients name it. */
export const url = (origin) => origin + PATH;

/** What scopes grant, for the filter's challenges and for the issuer. */
export const SCOPES = {
  'shop.read': { 'shop.read_orders': { year: { constraint_type: 'range', min: 2020, max: 2026 } } },
  'shop.charge': {
    'shop.charge_account': {
      account: { constraint_type: 'wildcard' },
      amount: { constraint_type: 'range', min: 1, max: 1000 },
    },
  },
};

/** The filter's rule. */
export const rule = (origin) => ({
  name: 'shop',
  match: { path: PATH },
  audience: [url(origin)],
  authorization: { proof: 'dpop', origins: [origin] },
  nonce: true,
  mcp: { tools: { prefix: 'shop.' }, methods: { 'server/discover': { open: true }, 'tools/list': { open: true } } },
});

/** The issuer as a trust anchor of the filter. */
export const trusted = (issuer, samePrincipalsAs) => ({
  issuer, algorithms: ['Ed25519'], samePrincipalsAs, accessTokens: { scopes: SCOPES },
});

/** Settings of the issuer: its words for the tools, and how much people may grant. */
export const consents = (origin) => ({
  scopes: SCOPES,
  tools: {
    'shop.read_orders': { title: 'read orders', arguments: { year: 'year' } },
    'shop.charge_account': { title: 'charge an account', arguments: { account: 'account', amount: 'amount in euros' } },
  },
  policy: [{
    name: 'shop',
    groups: ['staff'],
    audience: [url(origin)],
    depth: 1,
    token_lifetime_s: 300,
    grant_lifetime_s: 604_800,
    tools: {
      ...SCOPES['shop.read'],
      'shop.charge_account': {
        account: { constraint_type: 'one_of', values: ['household', 'travel'] },
        amount: { constraint_type: 'range', min: 1, max: 100 },
      },
    },
  }],
});

export const isFor = (request) => request.url === PATH;

export const serve = toNodeHandler(createMcpHandler(() => {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  const register = (name, description, properties, answer) => server.registerTool(
    name, { description, inputSchema: fromJsonSchema({ type: 'object', properties }) },
    (values) => ({ content: [{ type: 'text', text: answer(values) }] }));
  register('read_orders', 'Lists the orders of a year.', { year: { type: 'integer' } },
    ({ year }) => `orders of ${year}: 7, 8`);
  register('charge_account', 'Charges an account.', { account: { type: 'string' }, amount: { type: 'number' } },
    ({ account, amount }) => `charged ${account} ${amount}`);
  return server;
}));
