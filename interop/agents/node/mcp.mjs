// Clients of MCP's SDKs, over HTTP, and over standard input and output.

import { PREFIX, SESSIONS, STATELESS } from '../../mcp/node/stack.mjs';
import { expectNoKey, expectProven, expectUnread } from './keys.mjs';
import { count, expect, expectParts, testCase } from './report.mjs';
import { OTHER_TOOL, TOOL } from './stack.mjs';

/** Each SDK with each version and transport. */
export const MCP_CLIENTS = ['typescript', 'python'].flatMap((sdk) => [STATELESS, SESSIONS.at(-1)].flatMap((version) =>
  ['http', 'stdio'].map((transport) => ({ name: `${sdk}-${transport}-${version}`, sdk, version, transport }))));

/** `connection` is either `{ url }` or `{ command, args }`, as a client has it in its configuration. */
export async function testMcp({ name, sdk, version, connection, delegation }, here) {
  count('clients');
  const { credence, programs, open, ran, keys } = here;
  const run = (name, args) => ran.during(() => agent.ask('call', name, args));
  const isDenied = async (action, ...parts) => {
    const { result, lines } = await ran.during(() => action().then(
      (found) => Promise.reject(new Error(`it was allowed: ${found}`)), (error) => error.message));
    expectParts(result, ...parts);
    expect(lines, []);
  };
  let agent;
  let attempts = 0;

  await testCase('allowed', name, 'connects, and lists the tools', async () => {
    agent = await open(...programs.agents[sdk], { version, ...connection });
    expect(await agent.ask('version'), version);
    expect((await agent.ask('list')).includes(TOOL), true);
  });
  if (!agent) return;
  await testCase('allowed', name, 'calls a tool with an argument that is granted', async () => {
    const { result, lines } = await run(TOOL, { region: 'eu' });
    expect(result, 'region=eu');
    expect(lines, [{ tool: TOOL, arguments: { region: 'eu' } }]);
  });
  await testCase('denied', name, 'another value of the argument', () =>
    isDenied(() => agent.ask('call', TOOL, { region: 'cn' }), 'argument_not_allowed'));
  await testCase('denied', name, 'another tool', () =>
    isDenied(() => agent.ask('call', OTHER_TOOL, {}), 'tool_not_granted'));
  await testCase('allowed', name, 'calls the tool again', async () => {
    const { result } = await run(TOOL, { region: 'us' });
    expect(result, 'region=us');
  });
  await testCase('keys', name, 'runs as another user, and cannot open the keys', async () => {
    attempts = await expectNoKey(agent, keys);
  });
  await credence.revoke(delegation);
  await testCase('revoked', name, 'the next call', () =>
    isDenied(() => agent.ask('call', TOOL, { region: 'eu' }), 'revoked_delegation'));
  await testCase('proofs', name, 'every proof is of the proxy\'s key', () =>
    expectProven(here, delegation, { allowed: [PREFIX + TOOL], reasons: ['revoked_delegation'] }));
  await testCase('keys', name, 'it has opened no key', async () => expectUnread(await agent.close(), attempts));
}
