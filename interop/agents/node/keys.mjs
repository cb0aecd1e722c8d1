// No agent reads a key, and every proof is made with the proxy's.

import { statSync } from 'node:fs';
import { until } from '../../oauth/node/processes.mjs';
import { NOBODY } from './agents.mjs';
import { count, expect, expectParts, testCase } from './report.mjs';

/** The owner of the keys, and an agent that starts the proxy itself. */
export async function testKeys({ keys, programs, credence, run, proxy, origin, mint }) {
  await testCase('keys', 'the keys', 'only root can read them', () => {
    for (const key of keys) {
      const { uid, mode } = statSync(key);
      expect([key, uid, mode & 0o777], [key, 0, 0o600]);
    }
  });
  await testCase('keys', 'an agent that starts the proxy itself', 'gets no key', async () => {
    const settings = { listen: '127.0.0.1:0', service: origin };
    const config = proxy.configure('own', [{ name: 'own', delegation: await mint(), settings }]);
    const options = ['proxy', '--config', config, '--stdio', `${origin}/mcp`];
    const { status, output, errors, opened } = await run(programs.credence, options);
    expect([status === 0, output], [false, '']);
    expectParts(errors, `${credence.holderKey}: Permission denied`);
    expectUnread(opened, 1);
  });
}

/** The agent runs as the user `nobody`, and cannot open a key. Returns how many keys it tried. */
export async function expectNoKey(agent, keys) {
  expect(await agent.ask('uid'), NOBODY);
  for (const key of keys) {
    const found = await agent.ask('open', key);
    if (found === 'opened') count('key_reads');
    expect(found, 'EACCES');
  }
  return keys.length;
}

/** No attempt in a trace, if there is one, succeeded, and there were exactly so many. */
export function expectUnread(opened, attempts) {
  if (!opened) return;
  count('key_reads', opened.succeeded);
  expect(opened, { attempts, succeeded: 0 });
}

/** The ledger has decisions for these tools and reasons, and the proxy's key proved each request that was allowed. */
export async function expectProven({ credence, agent }, delegation, { allowed, reasons }) {
  const all = await until('the evidence', async () => {
    const decisions = await credence.decisions(delegation);
    const [allows, denies] = ['allow', 'deny'].map((kind) => decisions.filter(({ decision }) => decision === kind));
    const isThere = allowed.every((wanted) => allows.some(({ tool }) => tool === wanted))
      && reasons.every((wanted) => denies.some(({ reason }) => reason === wanted));
    return isThere && decisions;
  });
  for (const { decision, proof, agent: found } of all) {
    if (decision === 'allow') expect({ proof, agent: found }, { proof: 'pop', agent });
  }
}
