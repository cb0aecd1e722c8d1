// curl, to the REST service.

import { NOBODY } from './agents.mjs';
import { expectProven, expectUnread } from './keys.mjs';
import { count, expect, expectParts, testCase } from './report.mjs';

const CURL = ['--silent', '--show-error', '--include', '--max-time', '30'];

export const CURL_CLIENTS = [{ name: 'curl-reverse' }, { name: 'curl-forward' }, { name: 'curl-socket' }];

/** `base` is where URLs begin; `options` and `environment` are how curl gets to the proxy. */
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
    isDenied(() => charge(250), ...BY_THE_PROXY));
  await testCase('denied', name, 'another value in the body', () =>
    isDenied(() => order({ sku: 'gold', amount: 2 }), ...BY_THE_PROXY));
  await testCase('keys', name, 'runs as another user, and cannot open the keys', async () => {
    const { output } = await run('curl', ['--silent', 'file:///proc/self/status']);
    expectParts(output, `Uid:\t${NOBODY}\t${NOBODY}`);
    const { status, output: read, opened } = await run('curl', ['--silent', ...keys.map((key) => `file://${key}`)]);
    expectUnread(opened, keys.length);
    expect([status, read], [COULD_NOT_READ, '']);
  });
  await credence.revoke(delegation);
  await testCase('revoked', name, 'the next request', () =>
    isDenied(() => charge(25), 'http/1.1 401', 'revoked_delegation'));
  await testCase('proofs', name, 'every proof is of the proxy\'s key', () =>
    expectProven(here, delegation, { allowed: ['payments.charge', 'orders.create'], reasons: ['revoked_delegation'] }));
}

const BY_THE_PROXY = ['http/1.1 403', 'x-answered-by: credence-proxy', 'argument_not_allowed'];
/** CURLE_FILE_COULDNT_READ_FILE */
const COULD_NOT_READ = 37;
