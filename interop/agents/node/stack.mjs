// An MCP server and a REST service behind the real filter in the real Envoy, with the real control plane.

import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { start, until } from '../../oauth/node/processes.mjs';
import { AUDIENCE, ISSUER, installation } from '../../mcp/node/credence.mjs';
import { PREFIX, SESSIONS, STATELESS } from '../../mcp/node/stack.mjs';
import { everyWorkerAllows, startControlPlane, startEnvoy } from '../../mcp/node/stack.mjs';
import { follow } from './log.mjs';

/** The MCP tool that clients call. */
export const TOOL = 'test_x_mcp_header';
/** Another tool of the server, which is not granted. */
export const OTHER_TOOL = 'test_simple_text';

/** What each client is granted. */
const GRANT = {
  'payments.charge': {
    account: { constraint_type: 'exact', value: 'acme' },
    amount: { constraint_type: 'range', max: 100 },
  },
  'orders.create': {
    sku: { constraint_type: 'one_of', values: ['paper', 'ink'] },
    amount: { constraint_type: 'range', max: 10 },
  },
  [PREFIX + TOOL]: { region: { constraint_type: 'one_of', values: ['eu', 'us'] } },
};

/** Starts all of it. `credence` has the keys; `mint` grants a client what every client of this test may do. */
export async function startStack({ programs, folder, ports: { port, http, grpc, mcp, rest } }) {
  const credence = installation({ program: programs.credence, folder, http });
  const jwk = await credence.createKeys();
  const logId = await startControlPlane({ programs, folder, http, grpc });
  const servers = [
    server({ programs, folder, name: 'mcp', port: mcp }),
    server({ programs, folder, name: 'rest', port: rest }),
  ];
  const envoy = startEnvoy({
    programs, folder, servers, port, grpc,
    routes: [route('/mcp', 'mcp'), route('/ready/', 'mcp', '/'), route('/v1/', 'rest')],
    plugin: pluginConfig({ jwk, logId }),
  });
  const origin = `http://127.0.0.1:${port}`;
  const { chain } = await credence.mint(GRANT);
  await until('the filter to be ready', () => everyWorkerAllows(`${origin}/ready/mcp`, { delegation: chain }), envoy);
  // After its start, the filter refuses proofs for so long.
  await pause(SKEW_SECONDS * 1000 + 500);
  const [{ log: ran }, { log: seen }] = servers;
  return { credence, origin, ran, seen, mint: () => credence.mint(GRANT) };
}

/** Starts a server; its `log` has what it did. */
function server({ programs, folder, name, port }) {
  const files = {
    mcp: join(import.meta.dirname, '../../mcp/node/everything.mjs'),
    rest: join(import.meta.dirname, 'service.mjs'),
  };
  const log = join(folder, `${name}.jsonl`);
  start(programs.node, [files[name], port, log], join(folder, `${name}.log`));
  return { name, port, log: follow(log) };
}

const route = (prefix, cluster, rewritten = prefix) =>
  ({ match: { prefix }, route: { cluster, prefix_rewrite: rewritten, timeout: '0s' } });

const SKEW_SECONDS = 1;

function pluginConfig({ jwk, logId }) {
  const mcp = { versions: [...SESSIONS, STATELESS], tools: { prefix: PREFIX }, methods: METHODS };
  return {
    audience: [AUDIENCE],
    trust_anchors: [{ issuer: ISSUER, jwk, asserts_subjects: true }],
    control_plane: { cluster: 'credence', log_id: logId },
    audit: { arguments: 'full' },
    pop_clock_skew: `${SKEW_SECONDS}s`,
    rules: [
      { name: 'ready', match: { path: '/ready/mcp' }, proof: 'none', mcp },
      { name: 'mcp', match: { path: '/mcp' }, proof: 'pop', mcp },
      {
        name: 'charge', match: { methods: ['POST'], path: '/v1/accounts/{account}/charges' },
        tool: 'payments.charge', args: { account: { path: 'account' }, amount: { query: 'amount', type: 'number' } },
        proof: 'pop',
      },
      {
        name: 'order', match: { methods: ['POST'], path: '/v1/orders' },
        tool: 'orders.create', args: { sku: { body: '/sku' }, amount: { body: '/amount', type: 'number' } },
        proof: 'pop',
      },
    ],
  };
}

const METHODS = Object.fromEntries([
  'GET', 'DELETE', 'initialize', 'server/discover', 'ping', 'tools/list', 'notifications/initialized',
  'notifications/cancelled',
].map((name) => [name, { open: true }]));

/** The thumbprint of an Ed25519 key (RFC 7638), by which the ledger names agents. */
export const thumbprint = ({ crv, kty, x }) =>
  createHash('sha256').update(JSON.stringify({ crv, kty, x })).digest('base64url');
