// No agent reads a key, and every proof is made with the proxy's.

import { statSync } from 'node:fs';
import { until } from '../../oauth/node/processes.mjs';
import { NOBODY } from './agents.mjs';
import { count, expect, expectParts, testCase } from './report.mjs';

/** Whom the keys belong to, and what happens if an agent starts the proxy itself. */
export async function testKeys({ keys, programs, run, proxy, origin, mint }) {
  await testCase('keys', 'the keys', 'only root can read them', () => {
    for (const key of keys) {
      const { uid, mode } = statSync(key);
      expect([key, uid, mode & 0o777], [key, 0, 0o600]);
    }
  });
  await testCase('keys', 'an agent that starts the proxy itself', 'gets no key', async () => {
    const settings = { listen: '127.0.0.1:0', service: origin };
    const config = proxy.configure('own', [{ name: 'own', delegation: await mint(), settings }]);
    const { status, output, errors, opened } = await run(programs.credence, ['proxy', '--config', config, '--stdio', `${origin}/mcp`]);
    expect([status === 0, output], [false, '']);
    expectParts(errors, 'Permission denied');
    expectUnread(opened);
  });
}

/** That the agent is nobody's, and cannot open a key. Returns how many keys it tried. */
export async function expectNoKey(agent, keys) {
  expect(await agent.ask('uid'), NOBODY);
  for (const key of keys) {
    const found = await agent.ask('open', key);
    if (found === 'opened') count('key_reads');
    expect(found, 'EACCES');
  }
  return keys.length;
}

/** Of the attempts in a trace, if there is one, none succeeded; and there were no more than these. */
export function expectUnread(opened, attempts) {
  if (!opened) return;
  count('key_reads', opened.succeeded);
  expect(opened.succeeded, 0);
  if (attempts !== undefined) expect(opened.attempts, attempts);
}

/** That the ledger has these decisions about a delegation, and that the proxy's key proved each request. */
export async function expectProven({ credence, agent }, delegation, { allowed, reasons }) {
  const all = await until('the evidence', async () => {
    const decisions = await credence.decisions(delegation);
    const has = (wanted) => decisions.some((decision) => Object.entries(wanted).every(([name, value]) => decision[name] === value));
    const isThere = allowed.every((tool) => has({ decision: 'allow', tool })) && reasons.every((reason) => has({ decision: 'deny', reason }));
    return isThere && decisions;
  });
  for (const { decision, proof, agent: found } of all) {
    if (decision === 'allow') expect({ proof, agent: found }, { proof: 'pop', agent });
  }
}
