// curl, to the REST service.

import { NOBODY } from './agents.mjs';
import { expectProven, expectUnread } from './keys.mjs';
import { count, expect, expectParts, testCase } from './report.mjs';

const CURL = ['--silent', '--show-error', '--include', '--max-time', '30'];

/** Each has the settings of the proxy's client, and how curl gets to it: options, and where URLs begin. */
export function curlClients({ origin, ports: [reverse, forward], socket }) {
  return [
    {
      name: 'curl-reverse', settings: { listen: `127.0.0.1:${reverse}`, service: origin },
      base: `http://127.0.0.1:${reverse}`,
    },
    {
      name: 'curl-forward', settings: { listen: `127.0.0.1:${forward}` },
      base: origin, environment: { http_proxy: `http://127.0.0.1:${forward}` },
    },
    {
      name: 'curl-socket', settings: { listen: `unix:${socket}`, service: origin },
      base: 'http://localhost', options: ['--unix-socket', socket],
    },
  ];
}

export async function testCurl({ name, base, options = [], environment, delegation }, here) {
  count('clients');
  const { credence, run, seen, keys } = here;
  const curl = async (...more) => {
    const { output, opened } = await run('curl', [...CURL, ...options, ...more], environment);
    expectUnread(opened, 0);
    return output;
  };
  const charge = (amount) => curl('--request', 'POST', `${base}/v1/accounts/acme/charges?amount=${amount}`);
  const order = (body) => curl('--json', JSON.stringify(body), `${base}/v1/orders`);
  const isDenied = async (action, ...parts) => {
    const { result, lines } = await seen.during(action);
    expectParts(result.toLowerCase(), ...parts);
    expect(lines, []);
  };

  await testCase('allowed', name, 'an amount that is granted', async () => {
    const { result, lines } = await seen.during(() => charge(25));
    expectParts(result, 'HTTP/1.1 200', '"did"');
    expect(lines, [{ method: 'POST', target: '/v1/accounts/acme/charges?amount=25', body: '' }]);
  });
  await testCase('allowed', name, 'a body that is granted', async () => {
    const { result, lines } = await seen.during(() => order({ sku: 'ink', amount: 2 }));
    expectParts(result, 'HTTP/1.1 200', '"did"');
    expect(lines, [{ method: 'POST', target: '/v1/orders', body: '{"sku":"ink","amount":2}' }]);
  });
  await testCase('denied', name, 'a larger amount', () =>
    isDenied(() => charge(250), 'http/1.1 403', 'x-answered-by: credence-proxy', 'argument_not_allowed'));
  await testCase('denied', name, 'another value in the body', () =>
    isDenied(() => order({ sku: 'gold', amount: 2 }), 'http/1.1 403', 'x-answered-by: credence-proxy', 'argument_not_allowed'));
  await testCase('keys', name, 'runs as nobody, and cannot open the keys', async () => {
    const { output } = await run('curl', ['--silent', 'file:///proc/self/status']);
    expectParts(output, `Uid:\t${NOBODY}\t${NOBODY}`);
    const { status, output: read, opened } = await run('curl', ['--silent', ...keys.map((key) => `file://${key}`)]);
    expect([status, read], [COULD_NOT_READ, '']);
    expectUnread(opened, keys.length);
  });
  await credence.revoke(delegation);
  await testCase('revoked', name, 'the next request', () =>
    isDenied(() => charge(25), 'http/1.1 401', 'revoked_delegation'));
  await testCase('proofs', name, 'every proof is of the proxy\'s key', () =>
    expectProven(here, delegation, { allowed: ['payments.charge', 'orders.create'], reasons: ['revoked_delegation'] }));
}

/** CURLE_FILE_COULDNT_READ_FILE */
const COULD_NOT_READ = 37;
