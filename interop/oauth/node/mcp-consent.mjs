// An MCP client that knows nothing of Credence: the MCP SDK finds the issuer from a 401, and a person decides in Chromium.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';
import { HEAD, person } from './chromium.mjs';
import { Remembered, observe } from './mcp.mjs';
import { grant } from './report.mjs';
import { url as shopUrl } from './shop.mjs';

/**
 * What an application remembers for the SDK, and its own page where people return. `decide` is what the person does in
 * the browser at the URL that the SDK makes.
 */
class Application extends Remembered {
  asked = [];

  static async start(clientMetadataUrl) {
    const application = Object.assign(new Application(), { server: createServer(), clientMetadataUrl });
    application.server.on('request', (request, response) => {
      application.answer = new URL(request.url, application.redirectUrl).searchParams;
      assert.equal(application.answer.get('state'), application.expected);
      response.setHeader('content-type', 'text/html').end(`${HEAD}<p>You can close this page.`);
    });
    await once(application.server.listen(0, '127.0.0.1'), 'listening');
    return application;
  }

  stop() {
    return new Promise((done) => this.server.close(done).closeAllConnections());
  }

  get redirectUrl() {
    return `http://127.0.0.1:${this.server.address().port}/callback`;
  }

  get clientMetadata() {
    return { client_name: 'Planner', redirect_uris: [this.redirectUrl], token_endpoint_auth_method: 'none' };
  }

  state() {
    this.expected = randomUUID();
    return this.expected;
  }

  clientInformation() {
    return this.information;
  }

  saveClientInformation(information) {
    this.information = information;
  }

  invalidateCredentials(kind) {
    if (kind === 'tokens') this.saved = undefined;
  }

  async redirectToAuthorization(url) {
    this.asked.push(url.searchParams);
    await this.decide(url);
  }
}

/** The application Planner, which calls the tools of the shop. `application.decide` is what the person does. */
export async function startPlanner({ origin, documents }) {
  const redirectUris = ['http://127.0.0.1/callback'];
  const id = documents.publish('/planner.json', { client_name: 'Planner', redirect_uris: redirectUris });
  const application = await Application.start(id);
  const seen = observe(application);
  const client = new Client({ name: 'planner', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
  let transport;
  const connect = () => {
    transport = new StreamableHTTPClientTransport(new URL(shopUrl(origin)), {
      authProvider: application, fetch: seen.fetch,
    });
    return client.connect(transport);
  };
  /** As the SDK's documentation has it: after the redirect, the application finishes and tries again. */
  const authorized = async (action) => {
    application.answer = undefined;
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || !application.answer) throw error;
      await transport.finishAuth(application.answer);
      return action();
    }
  };
  const call = (name, values) => authorized(async () => {
    const { content: [{ text }] } = await client.callTool({ name, arguments: values });
    return text;
  });
  return {
    id,
    application,
    seen,
    connect: () => authorized(connect),
    readOrders: (year) => call('read_orders', { year }),
    charge: (account, amount) => call('charge_account', { account, amount }),
    stop: () => Promise.all([client.close(), application.stop()]),
  };
}

/** One client, from its first request until the person takes back what they granted. */
export async function grants(here) {
  const grace = await person('grace', here);
  const planner = await startPlanner(here);
  const { application, seen } = planner;

  await grant('MCP: 401, discovery, client metadata document, sign-in and consent in Chromium, a tool call', async () => {
    application.decide = async (url) => {
      await grace.open(url);
      assert.match(await grace.page.getByRole('main').innerText(), /calls itself Planner\. 127\.0\.0\.1 vouches for that/);
      await grace.tick('read orders');
      await grace.tool('read orders').getByLabel('at least').fill('2025');
      await grace.press('Allow');
    };
    await planner.connect();
    assert.equal(await planner.readOrders(2026), 'orders of 2026: 7, 8');
    assert.match(seen.answers[0], /^401/);
    assert.deepEqual(application.asked.map((asked) => asked.get('client_id')), [planner.id]);
    assert.equal(application.asked[0].get('resource'), shopUrl(here.origin));
    assert.deepEqual([application.saved.token_type, application.saved.scope], ['DPoP', 'shop.read']);
  });
  await grant('MCP: step-up after 403', async () => {
    application.decide = async (url) => {
      await grace.open(url);
      await grace.tick('read orders');
      await grace.tick('charge an account');
      await grace.tool('charge an account').getByLabel('travel').check();
      await grace.tool('charge an account').getByLabel('at most').fill('20');
      await grace.press('Allow');
    };
    assert.equal(await planner.charge('travel', 15), 'charged travel 15');
    assert.ok(seen.answers.includes('403 insufficient_scope'), seen.answers.join());
    assert.equal(application.asked.length, 2);
    assert.equal(application.saved.scope, 'shop.charge shop.read');
    assert.equal(await planner.readOrders(2021), 'orders of 2021: 7, 8');
  });
  await grant('MCP: more than the person left is denied', async () => {
    for (const [account, amount] of [['travel', 21], ['household', 1]]) {
      const before = seen.answers.length;
      await assert.rejects(planner.charge(account, amount), { name: 'SdkHttpError' });
      assert.equal(seen.answers[before], '403 insufficient_scope');
    }
  });
  await grant('MCP: taken back on the page, the next call is denied', async () => {
    assert.equal(await planner.charge('travel', 1), 'charged travel 1');
    assert.equal(await grace.takeAllBack(), 'Taken back. No service accepts it any more.');
    // The SDK asks again, but there is no answer.
    application.decide = () => {};
    const before = seen.answers.length;
    await assert.rejects(planner.charge('travel', 1), UnauthorizedError);
    assert.equal(seen.answers[before], '401 invalid_token');
  });
  await grant('Chromium reports no error and no violation of a policy on our pages', () =>
    assert.deepEqual(grace.complaints, []));
  await Promise.all([grace.close(), planner.stop()]);
}
