// Clients of the official SDKs do what the delegation grants, and nothing else.

import { CLIENTS } from './clients.mjs';
import { sdkTest } from './report.mjs';
import { SESSIONS, STATELESS } from './stack.mjs';
import { GRANT, MISSING, REVOKED, STEPS, expect, perform } from './steps.mjs';

/** Every client with every server and version, with and without proofs. */
export async function testClients({ credence, origin, servers }) {
  for (const client of CLIENTS) {
    for (const server of servers) {
      for (const version of client.versions) {
        const what = `${client.name} with ${server.name}, ${version}`;
        const at = { what, client, server, version, credence };
        await testClient({ ...at, url: `${origin}/${server.name}/mcp`, rule: server.name });
        await testClient({
          ...at,
          what: `${what}, with proofs`,
          url: `${origin}/proven/${server.name}/mcp`,
          rule: `proven-${server.name}`,
          proofs: { program: credence.program, key: credence.holderKey },
        });
      }
    }
  }
}

async function testClient({ what, client: { open }, server, version, credence, url, rule, proofs }) {
  const delegation = await credence.mint(GRANT);
  const steps = STEPS.filter(({ only = () => true }) => only(version));
  const connect = (chain) => open({ url, version, delegation: chain, proofs });
  server.evidence.begin();

  await sdkTest(`${what}: is denied without a delegation`, () => perform(connect, { denied: MISSING }));
  let client;
  await sdkTest(`${what}: connects`, async () => (client = await connect(delegation.chain)));
  if (!client) return;
  for (const step of steps) {
    await sdkTest(`${what}: ${step.name}`, () => perform(() => step.act(client), step));
  }
  await credence.revoke(delegation);
  await sdkTest(`${what}: is denied after the revocation`, () => perform(() => client.list(), { denied: REVOKED }));
  // The end of a session is denied, too.
  await client.close().catch(() => {});

  await sdkTest(`${what}: the server ran what was allowed, and nothing else`, async () => {
    const ran = server.evidence.ran().map(({ tool, arguments: args }) => [tool, args]);
    expect(ran, steps.flatMap((step) => step.ran ?? []));
  });
  const reasons = [REVOKED, ...steps.map((step) => step.denied)].map((denied) => denied?.reason).filter(Boolean);
  const methods = steps.map(({ method }) => method).filter(Boolean);
  await server.evidence.compare(what, { rule, delegation, reasons, methods });
}

/** A client that speaks every version takes an older one where the rule allows only those. */
export async function testFallback({ origin, servers }) {
  const version = SESSIONS.at(-1);
  for (const { name, open } of CLIENTS.filter(({ versions }) => versions.includes(STATELESS))) {
    for (const server of servers) {
      await sdkTest(`${name} with ${server.name}: takes an older version`, async () => {
        const client = await open({ url: `${origin}/granted/${version}/${server.name}/mcp`, version: STATELESS });
        expect((await client.list()).includes('test_simple_text'), true);
        await client.close();
      });
    }
  }
}
