// An agent on LangGraph, whose model is scripted. Its tools call the MCP server and the REST service.

import { PREFIX } from '../../mcp/node/stack.mjs';
import { expectNoKey, expectProven, expectUnread } from './keys.mjs';
import { count, expect, expectParts, testCase } from './report.mjs';
import { OTHER_TOOL, TOOL } from './stack.mjs';

/** With MCP over HTTP and a reverse proxy; and with MCP over standard input and output, and a forward proxy. */
export const LANGGRAPH_CLIENTS = [{ name: 'langgraph-http' }, { name: 'langgraph-stdio' }];

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
    const [targets, uses] = [requests.map(({ target }) => target), tools.map(({ arguments: args }) => args)];
    return { texts: result, requests: targets, tools: uses };
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
      ['order', { sku: 'paper', amount: 3 }],
      [TOOL, { region: 'eu' }],
      ['charge', { account: 'acme', amount: 25 }],
    );
    const expected = [['200 ', '"did"'], ['region=eu'], ['200 ', '"did"']];
    expected.forEach((parts, index) => expectParts(texts[index], ...parts));
    expect(requests, ['/v1/orders', '/v1/accounts/acme/charges?amount=25']);
    expect(tools, [{ region: 'eu' }]);
  });
  // Over HTTP, version 1 of the SDK does not read the body of an error. The description is in the challenge, too.
  await testCase('denied', name, 'another value of an MCP tool', () =>
    isDenied([TOOL, { region: 'cn' }], 'The delegation does not allow this value of the argument.'));
  await testCase('denied', name, 'another MCP tool', () =>
    isDenied([OTHER_TOOL, {}], 'The delegation does not grant this tool.'));
  const isRefused = ['403 ', 'argument_not_allowed'];
  await testCase('denied', name, 'a larger order', () =>
    isDenied(['order', { sku: 'paper', amount: 30 }], ...isRefused));
  await testCase('denied', name, 'another account', () =>
    isDenied(['charge', { account: 'other', amount: 25 }], ...isRefused));
  await testCase('keys', name, 'runs as another user, and cannot open the keys', async () => {
    attempts = await expectNoKey(agent, keys);
  });
  await credence.revoke(delegation);
  await testCase('revoked', name, 'the next call of the REST service', () =>
    isDenied(['order', { sku: 'paper', amount: 3 }], '401 ', 'revoked_delegation'));
  await testCase('revoked', name, 'the next call of the MCP server', () =>
    isDenied([TOOL, { region: 'eu' }], 'The delegation, or one it was derived from, is revoked.'));
  await testCase('proofs', name, 'every proof is of the proxy\'s key', () => expectProven(here, delegation, {
    allowed: [PREFIX + TOOL, 'orders.create', 'payments.charge'], reasons: ['revoked_delegation'],
  }));
  await testCase('keys', name, 'it has opened no key', async () => expectUnread(await agent.close(), attempts));
}
