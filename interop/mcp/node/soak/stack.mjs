// The real control plane, and the real filter in the real Envoy, in front of the servers, with generated delegations.

import { until } from '../../../oauth/node/processes.mjs';
import { everyWorkerAllows, startControlPlane, startEnvoy } from '../stack.mjs';
import { grant } from './grants.mjs';
import { choices } from './random.mjs';
import { RULE_HEADER } from './record.mjs';
import { RULES, pluginConfig } from './rules.mjs';

const DELEGATIONS = 48;

/** The tools of each delegation, for this seed. */
export function grantsOf(seed, options) {
  return Array.from({ length: DELEGATIONS }, (_, place) => grant(choices(seed, place, DELEGATIONS), options));
}

/** Starts all. Returns Envoy, the delegations, one for each of `grants`, and one that is revoked. */
export async function startStack({ programs, folder, credence, servers, grants, ports: { port, http, grpc } }) {
  const jwk = await credence.createKeys();
  const logId = await startControlPlane({ programs, folder, http, grpc });
  const mint = (tools, place) => credence.mint(tools, { subject: `user-${place}`, lifetime: '6h' });
  const delegations = [];
  for (const [place, tools] of grants.entries()) delegations.push(await mint(tools, place));
  const revoked = await mint({ 'soak.pay': {}, 'soak.drop': {} }, 'revoked');
  const plugin = pluginConfig({ jwk, logId, servers });
  const envoy = startEnvoy({ programs, folder, servers, routes: servers.flatMap(routes), port, grpc, plugin });
  const url = `http://127.0.0.1:${port}/${servers[0].name}/mcp`;
  await until('the filter to be ready', () => everyWorkerAllows(url, { delegation: delegations[0].chain }), envoy);
  await credence.revoke(revoked);
  return { envoy, delegations, revoked };
}

/** The routes to a server. Each tells it which rule should have decided. */
function routes({ name }) {
  const route = (rule, prefix, rewritten) => ({
    match: { prefix: `${prefix}/${name}/` },
    route: { cluster: name, prefix_rewrite: rewritten, timeout: '15s' },
    request_headers_to_add: [
      { header: { key: RULE_HEADER, value: rule }, append_action: 'OVERWRITE_IF_EXISTS_OR_ADD' },
    ],
  });
  return [...Object.entries(RULES).map(([rule, prefix]) => route(rule, prefix, '/')), route('open', '/open', '/open/')];
}
