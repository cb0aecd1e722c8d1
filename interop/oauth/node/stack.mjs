// The real control plane, and the real filter in the real Envoy, with the rules of this test.

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { start, until } from './processes.mjs';
import * as shop from './shop.mjs';

/**
 * Starts them. `issuers` are those to trust, with settings of their trust anchors. Envoy listens on
 * `port`, and with TLS on `tlsPort`; the control plane on `http` and `grpc`.
 */
export async function startStack({ programs, folder, issuers, servicePort, ports, certificate }) {
  const { port, tlsPort, http, grpc } = ports;
  const origin = `http://127.0.0.1:${port}`;
  const tlsOrigin = `https://127.0.0.1:${tlsPort}`;
  const controlPlane = await startControlPlane({ programs, folder, issuers, http, grpc });
  const template = readFileSync(join(programs.root, 'envoy-config/envoy.yaml'), 'utf8');
  const plugin = configuration({ origin, tlsOrigin, issuers, logId: controlPlane.logId });
  const changes = [
    [/port_value: 8080/, `port_value: ${port}`],
    [/port_value: 9901/, 'port_value: 0'],
    [/port_value: 9000/, `port_value: ${servicePort}`],
    [/port_value: 7071/, `port_value: ${grpc}`],
    [/filename: build\/credence-filter.wasm/, `filename: ${programs.wasm}`],
    [/(type.googleapis.com\/google.protobuf.Struct\n +value:)\n[^]*?(?=\n +- name: envoy.filters.http.router)/,
      `$1 ${JSON.stringify(plugin)}`],
    [/- filters:\n/, '- filters: &filters\n'],
    [/\n  clusters:\n/, `\n    - ${tlsListener(tlsPort, certificate)}\n  clusters:\n`],
  ];
  const text = changes.reduce((text, [old, by]) => {
    if (!old.test(text)) throw new Error(`envoy-config/envoy.yaml does not have ${old}: change both files together`);
    return text.replace(old, by);
  }, template);
  const file = join(folder, 'envoy.yaml');
  writeFileSync(file, text);
  const options = ['-c', file, '--concurrency', '2', '--log-level', 'warning', '--disable-hot-restart'];
  const envoy = start(programs.envoy, options, join(folder, 'envoy.log'));
  await until('the filter to be ready', async () => {
    const response = await fetch(`${origin}/ready`);
    return response.status === 404 || response.status === 403;
  }, envoy);
  return { origin, envoy, controlPlane };
}

/** A listener with the same filters that asks for a client certificate, and accepts any. */
function tlsListener(port, { cert, key }) {
  const context = {
    '@type': 'type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext',
    common_tls_context: {
      tls_certificates: [{ certificate_chain: { filename: cert }, private_key: { filename: key } }],
      validation_context: { trusted_ca: { filename: cert }, trust_chain_verification: 'ACCEPT_UNTRUSTED' },
    },
  };
  const socket = JSON.stringify({ name: 'envoy.transport_sockets.tls', typed_config: context });
  const address = JSON.stringify({ socket_address: { address: '127.0.0.1', port_value: port } });
  // An alias of YAML, which JSON does not have.
  return `{name: tls, address: ${address}, filter_chains: [{filters: *filters, transport_socket: ${socket}}]}`;
}

async function startControlPlane({ programs, folder, issuers, http, grpc }) {
  const settings = join(folder, 'credence.yaml');
  const keys = issuers.map(({ issuer, ca }) => ({
    issuer, private_addresses: ['127.0.0.0/8'], refresh_s: 1, max_key_age_s: 600, ...(ca && { ca }),
  }));
  // JSON is valid YAML.
  writeFileSync(settings, JSON.stringify({ issuer_keys: keys }));
  const child = start(programs.credence, [
    'serve', '--init', '--fresh', '--config', settings, '--data', join(folder, 'data'),
    '--operator-token-file', join(folder, 'operator-token'),
    '--http', `127.0.0.1:${http}`, '--grpc', `127.0.0.1:${grpc}`,
  ], join(folder, 'control-plane.log'));
  await until('the control plane', async () => (await fetch(`http://127.0.0.1:${http}/readyz`)).ok, child);
  child.logId = child.output().match(/^log_id: (\S+)$/m)[1];
  return child;
}

function configuration({ origin, tlsOrigin, issuers, logId }) {
  const dpop = { proof: 'dpop', origins: [origin] };
  const mcp = { audience: [`${origin}/mcp`], authorization: dpop };
  const bearerMcp = { audience: [`${origin}/bearer/mcp`], authorization: { proof: 'none' } };
  const stream = (path) => ({ match: { methods: ['GET', 'DELETE'], path }, tool: 'mcp.stream' });
  // The method and the tool of a JSON-RPC request are arguments, so that scopes can limit them.
  const message = {
    tool: 'mcp',
    args: { method: { body: '/method' }, name: { body: '/params/name', optional: true } },
    ignore_members: ['/jsonrpc', '/id', ...IGNORED.map((name) => `/params/${name}`)],
  };
  const mtls = { audience: [tlsOrigin], authorization: { proof: 'mtls' } };
  const order = { args: { id: { path: 'id' } }, authorization: dpop };
  return {
    audience: [origin],
    holder_algorithms: ['Ed25519', 'EdDSA', 'ES256'],
    trust_anchors: issuers.map(({ issuer, algorithms, accessTokens, samePrincipalsAs }) => ({
      issuer, algorithms, keys: 'control_plane', asserts_subjects: true, delegations: true,
      ...(samePrincipalsAs && { same_principals_as: samePrincipalsAs }),
      access_tokens: { scopes: SCOPES, ...accessTokens },
    })),
    control_plane: { cluster: 'credence', log_id: logId },
    rules: [
      { name: 'read', match: { methods: ['GET'], path: '/orders/{id}' }, tool: 'orders.read', ...order },
      { name: 'write', match: { methods: ['PUT'], path: '/orders/{id}' }, tool: 'orders.write', ...order },
      { name: 'delegated', match: { path: '/delegated/{id}' }, tool: 'orders.read', args: order.args },
      { name: 'once', match: { path: '/once' }, tool: 'orders.read', authorization: dpop, nonce: true },
      { name: 'bearer', match: { path: '/bearer' }, tool: 'orders.read', authorization: { proof: 'none' } },
      { name: 'mtls', match: { path: '/mtls' }, tool: 'orders.read', ...mtls },
      { name: 'mcp', match: { methods: ['POST'], path: '/mcp' }, nonce: true, ...message, ...mcp },
      { name: 'bearer-mcp', match: { methods: ['POST'], path: '/bearer/mcp' }, ...message, ...bearerMcp },
      { name: 'mcp-stream', ...stream('/mcp'), ...mcp },
      { name: 'bearer-mcp-stream', ...stream('/bearer/mcp'), ...bearerMcp },
      shop.rule(origin),
    ],
  };
}

/** Parameters that the filter does not read: those of tools, and of the handshake. */
const IGNORED = ['arguments', '_meta', 'protocolVersion', 'capabilities', 'clientInfo'];

/** What the scopes of every issuer grant. */
const SCOPES = {
  'orders.read': { 'orders.read': {} },
  'orders.write': { 'orders.write': {} },
  // All but calls of tools.
  mcp: { mcp: { method: { constraint_type: 'not_one_of', excluded: ['tools/call'] } }, 'mcp.stream': {} },
  'mcp.tools': { mcp: {}, 'mcp.stream': {} },
};
