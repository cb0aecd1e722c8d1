// An agent on LangGraph, whose model is scripted. Its tools call the MCP server and the REST service.

import { PREFIX } from '../../mcp/node/stack.mjs';
import { expectNoKey, expectProven, expectUnread } from './keys.mjs';
import { count, expect, expectParts, testCase } from './report.mjs';
import { OTHER_TOOL, TOOL } from './stack.mjs';

export const LANGGRAPH_CLIENTS = ['http', 'stdio'].map((transport) => ({ name: `langgraph-${transport}`, transport }));

/** `mcp` is a connection of langchain-mcp-adapters, `rest` how it calls the service. */
export async function testLangGraph({ name, mcp, rest, delegation }, here) {
  count('clients');
  const { credence, programs, open, ran, seen, keys } = here;
  let agent;
  let attempts = 0;
  /** What the model reads of each call, and what the servers did. */
  const run = async (...calls) => {
    const { result: { result, lines: requests }, lines: tools } =
      await ran.during(() => seen.during(() => agent.ask('run', ...calls)));
    return { texts: result, requests: requests.map(({ target }) => target), tools: tools.map(({ arguments: args }) => args) };
  };
  const isDenied = async (call, ...parts) => {
    const { texts: [text], requests, tools } = await run(call);
    expectParts(text, ...parts);
    expect([requests, tools], [[], []]);
  };

  await testCase('allowed', name, 'connects, and lists the tools', async () => {
    agent = await open(...programs.agents.langgraph, { mcp, rest });
    expect((await agent.ask('list')).includes(TOOL), true);
  });
  if (!agent) return;
  await testCase('allowed', name, 'calls tools of both servers in one run', async () => {
    const { texts, requests, tools } = await run(
      ['order', { sku: 'paper', amount: 3 }], [TOOL, { region: 'eu' }], ['charge', { account: 'acme', amount: 25 }]);
    [['200 ', '"did"'], ['region=eu'], ['200 ', '"did"']].forEach((parts, index) => expectParts(texts[index], ...parts));
    expect(requests, ['/v1/orders', '/v1/accounts/acme/charges?amount=25']);
    expect(tools, [{ region: 'eu' }]);
  });
  const isRefused = ['403 ', 'argument_not_allowed'];
  await testCase('denied', name, 'another value of an MCP tool', () =>
    isDenied([TOOL, { region: 'cn' }], 'argument_not_allowed'));
  await testCase('denied', name, 'another MCP tool', () => isDenied([OTHER_TOOL, {}], 'tool_not_granted'));
  await testCase('denied', name, 'a larger order', () => isDenied(['order', { sku: 'paper', amount: 30 }], ...isRefused));
  await testCase('denied', name, 'another account', () =>
    isDenied(['charge', { account: 'other', amount: 25 }], ...isRefused));
  await testCase('keys', name, 'runs as nobody, and cannot open the keys', async () => {
    attempts = await expectNoKey(agent, keys);
  });
  await credence.revoke(delegation);
  await testCase('revoked', name, 'the next call of the REST service', () =>
    isDenied(['order', { sku: 'paper', amount: 3 }], '401 ', 'revoked_delegation'));
  await testCase('revoked', name, 'the next call of the MCP server', async () => {
    const { result: text, lines } = await ran.during(() => agent.ask('list').catch((error) => error.message));
    expectParts(String(text), 'revoked_delegation');
    expect(lines, []);
  });
  await testCase('proofs', name, 'every proof is of the proxy\'s key', () => expectProven(here, delegation, {
    allowed: [PREFIX + TOOL, 'orders.create', 'payments.charge'], reasons: ['revoked_delegation'],
  }));
  await testCase('keys', name, 'it has opened no key', async () => expectUnread(await agent.close(), attempts));
}
