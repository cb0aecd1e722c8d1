// The real control plane, and the real filter in the real Envoy, in front of MCP servers.

import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { parse } from 'yaml';
import { start, until } from '../../oauth/node/processes.mjs';
import { AUDIENCE, ISSUER } from './credence.mjs';

/** What tools, reads and prompts are called in delegations. */
export const PREFIX = 'everything.';
export const READ = `${PREFIX}read`;
export const PROMPT = `${PREFIX}prompt`;

/**
 * Starts both. Each of `servers`, a name and a port, has these paths:
 * - `/NAME/mcp` needs a delegation.
 * - `/proven/NAME/mcp` needs a proof, too.
 * - At `/granted/VERSION/NAME/mcp` Envoy adds the server's `grant`, for clients that cannot add headers.
 */
export async function startStack({ programs, folder, credence, servers, ports: { port, http, grpc } }) {
  const jwk = await credence.createKeys();
  const logId = await startControlPlane({ programs, folder, http, grpc });
  for (const server of servers) {
    server.grant = await credence.mint(Object.fromEntries(server.tools.map((tool) => [tool, {}])));
  }
  const plugin = pluginConfig({ jwk, logId, servers });
  const envoy = startEnvoy({ programs, folder, servers, routes: servers.flatMap(routes), port, grpc, plugin });
  const origin = `http://127.0.0.1:${port}`;
  const [{ name }] = servers;
  await until('the filter to be ready', () => everyWorkerAllows(`${origin}/granted/${STATELESS}/${name}/mcp`), envoy);
  return { origin };
}

/** Starts Envoy with this plugin configuration, and a cluster for each server. */
export function startEnvoy({ programs, folder, ...settings }) {
  const file = join(folder, 'envoy.yaml');
  // JSON is valid YAML.
  writeFileSync(file, JSON.stringify(envoyConfig({ programs, ...settings })));
  const options = ['-c', file, '--concurrency', '2', '--log-level', 'warning', '--disable-hot-restart'];
  return start(programs.envoy, options, join(folder, 'envoy.log'));
}

/** Each connection is with one worker of Envoy: with this many, every worker has answered. */
const CONNECTIONS = 24;

export async function everyWorkerAllows(url, credentials = {}) {
  const version = 'io.modelcontextprotocol/protocolVersion';
  const capabilities = 'io.modelcontextprotocol/clientCapabilities';
  const params = { _meta: { [version]: STATELESS, [capabilities]: {} } };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'server/discover', params });
  const headers = {
    'content-type': 'application/json', accept: 'application/json, text/event-stream',
    'mcp-protocol-version': STATELESS, 'mcp-method': 'server/discover', ...credentials,
  };
  for (let sent = 0; sent < CONNECTIONS; sent += 1) {
    const [response] = await once(request(url, { method: 'POST', headers, agent: false }).end(body), 'response');
    response.resume();
    if (response.statusCode !== 200) return false;
  }
  return true;
}

/** Returns the id of its log. */
export async function startControlPlane({ programs, folder, http, grpc }) {
  const child = start(programs.credence, [
    'serve', '--init', '--fresh', '--data', join(folder, 'data'),
    '--operator-token-file', join(folder, 'operator-token'),
    '--http', `127.0.0.1:${http}`, '--grpc', `127.0.0.1:${grpc}`,
  ], join(folder, 'control-plane.log'));
  await until('the control plane', async () => (await fetch(`http://127.0.0.1:${http}/readyz`)).ok, child);
  return child.output().match(/^log_id: (\S+)$/m)[1];
}

/** envoy-config/envoy.yaml with this plugin configuration, these routes, and a cluster for each server. */
function envoyConfig({ programs, servers, routes, port, grpc, plugin }) {
  const config = parse(readFileSync(join(programs.root, 'envoy-config/envoy.yaml'), 'utf8'));
  delete config.admin;
  const { listeners: [listener], clusters: [service, controlPlane] } = config.static_resources;
  const address = ({ load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint }] }] } }) => endpoint.address;
  listener.address.socket_address.port_value = port;
  address(controlPlane).socket_address.port_value = grpc;
  const clusters = servers.map((server) => {
    const cluster = structuredClone(service);
    cluster.name = cluster.load_assignment.cluster_name = server.name;
    address(cluster).socket_address.port_value = server.port;
    cluster.typed_extension_protocol_options = { [HTTP_OPTIONS]: IDLE };
    return cluster;
  });
  config.static_resources.clusters = [...clusters, controlPlane];
  const manager = listener.filter_chains[0].filters[0].typed_config;
  // For a request that matches no rule, which never arrives.
  const rest = { match: { prefix: '/' }, direct_response: { status: 404 } };
  manager.route_config.virtual_hosts[0].routes = [...routes, rest];
  const wasm = manager.http_filters[0].typed_config.config;
  wasm.vm_config.code.local.filename = programs.wasm;
  wasm.configuration.value = plugin;
  manager.http_filters.unshift({
    name: MUTATION,
    typed_config: { '@type': `${MUTATION_TYPE}.HeaderMutation` },
  });
  return config;
}

function routes({ name, grant }) {
  const route = (prefix) => ({
    match: { prefix: `${prefix}/${name}/` },
    // A stream has no end of its own.
    route: { cluster: name, prefix_rewrite: '/', timeout: '0s' },
  });
  const header = { key: 'delegation', value: grant.chain };
  const mutations = { request_mutations: [{ append: { header, append_action: 'OVERWRITE_IF_EXISTS_OR_ADD' } }] };
  const perRoute = { [MUTATION]: { '@type': `${MUTATION_TYPE}.HeaderMutationPerRoute`, mutations } };
  const granted = Object.keys(GRANTED).map((version) => route(`/granted/${version}`));
  return [route(''), route('/proven'), ...granted.map((route) => ({ ...route, typed_per_filter_config: perRoute }))];
}

const HTTP_OPTIONS = 'envoy.extensions.upstreams.http.v3.HttpProtocolOptions';
/** The servers close a connection after five idle seconds, which may be just when Envoy uses it. */
const IDLE = {
  '@type': `type.googleapis.com/${HTTP_OPTIONS}`,
  common_http_protocol_options: { idle_timeout: '2s' },
  explicit_http_config: { http_protocol_options: {} },
};

const MUTATION = 'envoy.filters.http.header_mutation';
const MUTATION_TYPE = 'type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3';

function pluginConfig({ jwk, logId, servers }) {
  const rule = (name, path, proof, versions, methods) => ({
    name, match: { path }, proof, mcp: { versions, tools: { prefix: PREFIX }, methods: access(methods, versions) },
    ignore_members: ['/params/inputResponses', '/params/requestState'],
  });
  return {
    audience: [AUDIENCE],
    trust_anchors: [{ issuer: ISSUER, jwk, asserts_subjects: true }],
    control_plane: { cluster: 'credence', log_id: logId },
    audit: { arguments: 'full' },
    rules: servers.flatMap(({ name }) => [
      ...Object.entries(GRANTED).map(([version, versions]) => rule(
        `granted-${version}-${name}`, `/granted/${version}/${name}/mcp`, 'none', versions, SUITE_METHODS)),
      rule(`proven-${name}`, `/proven/${name}/mcp`, 'pop', VERSIONS, METHODS),
      rule(name, `/${name}/mcp`, 'none', VERSIONS, METHODS),
    ]),
  };
}

/** The version without sessions, and the versions with them. */
export const STATELESS = '2026-07-28';
export const SESSIONS = ['2025-03-26', '2025-06-18', '2025-11-25'];
const VERSIONS = [...SESSIONS, STATELESS];
/** What is allowed where the conformance suite tests a version. */
const GRANTED = { '2025-11-25': SESSIONS, [STATELESS]: [STATELESS] };

const access = (open, versions) => ({
  ...Object.fromEntries(open
    .filter((name) => !OF_SESSIONS.includes(name) || versions.some((version) => SESSIONS.includes(version)))
    .map((name) => [name, { open: true }])),
  'resources/read': { tool: READ },
  'prompts/get': { tool: PROMPT },
});

/** They need a version with sessions. */
const OF_SESSIONS = ['GET', 'DELETE', 'responses'];
const METHODS = [
  ...OF_SESSIONS, 'initialize', 'server/discover', 'ping', 'tools/list', 'resources/list',
  'resources/templates/list', 'prompts/list', 'subscriptions/listen', 'notifications/initialized',
  'notifications/cancelled', 'notifications/roots/list_changed', 'logging/setLevel',
];
/** For the conformance suite. */
const SUITE_METHODS = [...METHODS, 'completion/complete', 'resources/subscribe', 'resources/unsubscribe'];
