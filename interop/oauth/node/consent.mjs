// Credence's issuer: people sign in at oidc-provider, consent by a plain form, and take their grants back.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as oauth from 'oauth4webapi';
import { attacked, grant } from './report.mjs';
import { start as startProgram, until } from './processes.mjs';
import { Browser, fields } from './browser.mjs';

const LOCAL = { [oauth.allowInsecureRequests]: true };

/** Starts the issuer beside a control plane and an identity provider. */
export async function start({ programs, folder, secret, url, controlPlane, oidc, origin, redirect }) {
  const file = (name, text) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const rule = { audience: [origin], token_lifetime_s: 300, grant_lifetime_s: 86_400, depth: 1, groups: ['staff'] };
  const settings = {
    url,
    identity_provider: { issuer: oidc.issuer, client_id: 'credence', client_secret_file: file('consent-secret', secret) },
    control_plane: { url: controlPlane, token_file: join(folder, 'operator-token') },
    keys_passphrase_file: file('consent-passphrase', secret),
    clients: [
      { id: 'planner', name: 'Planner', redirect_uris: [redirect] },
      { id: 'other', name: '<script>Other</script>', redirect_uris: [redirect] },
    ],
    scopes: { 'orders.read': { 'orders.read': {} }, 'orders.write': { 'orders.write': {} }, 'orders.admin': { 'orders.admin': {} } },
    policy: [
      { ...rule, name: 'read', tools: { 'orders.read': { id: { constraint_type: 'wildcard' } } } },
      { ...rule, name: 'write', tools: { 'orders.write': { id: { constraint_type: 'one_of', values: ['1', '2'] } } } },
    ],
  };
  // JSON is valid YAML.
  const options = ['--config', file('issuer.yaml', JSON.stringify(settings)), '--data', join(folder, 'issuer-data')];
  const made = startProgram(programs.credence, ['issuer', 'keys', 'create', ...options], join(folder, 'issuer-keys.log'));
  await once(made, 'exit');
  assert.equal(made.exitCode, 0, made.output());
  const listen = ['--listen', new URL(url).host];
  const child = startProgram(programs.credence, ['issuer', 'serve', ...options, ...listen], join(folder, 'issuer.log'));
  await until('the issuer', async () => (await fetch(`${url}/healthz`)).ok, child);
  return { child, url, origin, redirect };
}

/** A client of the issuer with a DPoP key of its own, as oauth4webapi's examples have it. */
async function client({ url, redirect }, id = 'planner') {
  const issuer = new URL(url);
  const discovered = await oauth.discoveryRequest(issuer, { ...LOCAL, algorithm: 'oauth2' });
  const server = await oauth.processDiscoveryResponse(issuer, discovered);
  const metadata = { client_id: id };
  const options = { ...LOCAL, DPoP: oauth.DPoP(metadata, await oauth.generateKeyPair('Ed25519')) };
  const none = oauth.None();
  const parametersOf = async (asked, verifier, state) => new URLSearchParams({
    response_type: 'code', client_id: id, redirect_uri: redirect, state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256', ...asked,
  });
  return {
    /** A request, pushed (RFC 9126), and what redeems its code. */
    async ask(asked) {
      const [verifier, state] = [oauth.generateRandomCodeVerifier(), oauth.generateRandomState()];
      const parameters = await parametersOf(asked, verifier, state);
      const response = await oauth.pushedAuthorizationRequest(server, metadata, none, parameters, options);
      const { request_uri } = await oauth.processPushedAuthorizationResponse(server, metadata, response);
      return { page: `${server.authorization_endpoint}?${new URLSearchParams({ client_id: id, request_uri })}`, verifier, state };
    },
    /** The same in the URL itself. */
    async askInUrl(asked) {
      const [verifier, state] = [oauth.generateRandomCodeVerifier(), oauth.generateRandomState()];
      return { page: `${server.authorization_endpoint}?${await parametersOf(asked, verifier, state)}`, verifier, state };
    },
    async redeem(at, { verifier, state }) {
      const answer = oauth.validateAuthResponse(server, metadata, at, state);
      const response = await oauth.authorizationCodeGrantRequest(server, metadata, none, answer, redirect, verifier, options);
      return oauth.processAuthorizationCodeResponse(server, metadata, response);
    },
    async refresh({ refresh_token: token }) {
      const response = await oauth.refreshTokenGrantRequest(server, metadata, none, token, options);
      return oauth.processRefreshTokenResponse(server, metadata, response);
    },
    async revoke({ refresh_token: token }) {
      await oauth.processRevocationResponse(await oauth.revocationRequest(server, metadata, none, token, options));
    },
    /** The status of a request to the service. */
    async status({ access_token: token }, service) {
      try {
        return (await oauth.protectedResourceRequest(token, 'GET', new URL(service), undefined, undefined, options)).status;
      } catch (error) {
        if (!(error instanceof oauth.WWWAuthenticateChallengeError)) throw error;
        return error.status;
      }
    },
  };
}

/** The person allows what is ticked, and returns to the client. */
async function consent(browser, { url, redirect }, page, ticked) {
  const form = new URLSearchParams({ ...fields(page), ...ticked, decision: 'allow' });
  return browser.go(`${url}/consent`, { form, until: redirect });
}

/** A grant of everything that was asked for, and its first token. */
async function granted(here, asked = { scope: 'orders.read' }, ticked = { t0: 'on' }) {
  const [agent, browser] = [await client(here), new Browser()];
  const request = await agent.ask(asked);
  const { page } = await browser.go(request.page);
  const { url } = await consent(browser, here, page, ticked);
  return { agent, browser, request, at: url, tokens: await agent.redeem(url, request) };
}

const isError = (code) => (error) => (error.error ?? error.cause?.error) === code;

export async function grants(here) {
  const { origin, url } = here;
  await grant('code, PKCE, PAR, DPoP: the service accepts what the person left', async () => {
    const { agent, tokens } = await granted(here, { scope: 'orders.read', resource: origin }, { t0: 'on', t0a0only: '7' });
    // The filter takes the issuer's keys from the control plane, and proofs count after a second.
    await until('a grant to be accepted', async () => (await agent.status(tokens, `${origin}/orders/7`)) === 200);
    assert.equal(await agent.status(tokens, `${origin}/orders/8`), 403);
  });
  await grant('refresh: another token, for the same', async () => {
    const { agent, tokens } = await granted(here);
    const next = await agent.refresh(tokens);
    assert.equal(await agent.status(next, `${origin}/orders/1`), 200);
    assert.notEqual(next.refresh_token, tokens.refresh_token);
  });
  await grant('the person takes it back: the next request is denied', async () => {
    const { agent, browser, tokens } = await granted(here);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200);
    // What it did last comes from the ledger, which has it a moment later.
    const page = await until('the use to be listed', async () => {
      const { page: list } = await browser.go(`${url}/`);
      return /Last, at .* UTC, it did: use orders.read/.test(list.split('</section>')[0]) && list;
    });
    const [form, own] = ['form', 'grant'].map((name) => page.match(new RegExp(`name="${name}" value="([^"]+)"`))[1]);
    const after = await browser.go(`${url}/withdraw`, { form: new URLSearchParams({ form, grant: own }) });
    assert.match(after.page, /Taken back\. No service accepts it any more\./);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 401);
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
  });
  await grant('the client gives it up (RFC 7009)', async () => {
    const { agent, tokens } = await granted(here);
    await agent.revoke(tokens);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 401);
  });
  await grant('the person refuses', async () => {
    const [agent, browser] = [await client(here), new Browser()];
    const request = await agent.ask({ scope: 'orders.read' });
    const { page } = await browser.go(request.page);
    const form = new URLSearchParams({ ...fields(page), decision: 'refuse' });
    const back = await browser.go(`${url}/consent`, { form, until: here.redirect });
    await assert.rejects(agent.redeem(back.url, request), isError('access_denied'));
  });
  await grant('nothing is ticked beforehand, and nothing ticked grants nothing', async () => {
    const [agent, browser] = [await client(here), new Browser()];
    const { page } = await browser.go((await agent.ask({ scope: 'orders.read orders.write' })).page);
    assert.doesNotMatch(page, /checked/);
    assert.match((await consent(browser, here, page, {})).page, /choose at least one thing to allow/);
  });
  await grant('policy: what no rule allows cannot be granted', async () => {
    const [agent, browser] = [await client(here), new Browser()];
    const request = await agent.ask({ scope: 'orders.admin' });
    const back = await browser.go(request.page, { until: here.redirect });
    await assert.rejects(agent.redeem(back.url, request), isError('access_denied'));
  });
}

export async function attacks(here) {
  const { origin, url, redirect } = here;
  await attacked('code injection: a code redeemed twice ends its grant', async () => {
    const { agent, at, request, tokens } = await granted(here);
    await assert.rejects(agent.redeem(at, request), isError('invalid_grant'));
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
    await until('its token to be denied', async () => (await agent.status(tokens, `${origin}/orders/1`)) === 401);
  });
  await attacked('code injection: another session\'s code does not fit the verifier', async () => {
    const [agent, browser] = [await client(here), new Browser()];
    const [victim, own] = [await agent.ask({ scope: 'orders.read' }), await agent.ask({ scope: 'orders.read' })];
    const { page } = await browser.go(victim.page);
    const { url: at } = await consent(browser, here, page, { t0: 'on' });
    at.searchParams.set('state', own.state);
    await assert.rejects(agent.redeem(at, own), isError('invalid_grant'));
  });
  await attacked('client impersonation: a code counts only for its client', async () => {
    const [agent, thief, browser] = [await client(here), await client(here, 'other'), new Browser()];
    const request = await agent.ask({ scope: 'orders.read' });
    const { page } = await browser.go(request.page);
    const { url: at } = await consent(browser, here, page, { t0: 'on' });
    await assert.rejects(thief.redeem(at, request), isError('invalid_grant'));
  });
  await attacked('PKCE downgrade: no challenge, or a plain one', async () => {
    const agent = await client(here);
    for (const change of [{ code_challenge: '' }, { code_challenge_method: 'plain' }, { code_challenge_method: '' }]) {
      await assert.rejects(agent.ask({ scope: 'orders.read', ...change }), isError('invalid_request'));
    }
  });
  await attacked('redirect tricks: nobody is sent anywhere else', async () => {
    const agent = await client(here);
    for (const other of ['https://evil.example/', `${redirect}/../x`, `${redirect}?x=y`, redirect.replace('127.0.0.1', '127.0.0.1@evil.example')]) {
      const { page } = await agent.askInUrl({ scope: 'orders.read', redirect_uri: other });
      const response = await fetch(page, { redirect: 'manual' });
      assert.deepEqual([response.status, response.headers.get('location')], [400, null], other);
    }
  });
  await attacked('mix-up: answers name their issuer (RFC 9207)', async () => {
    const { at } = await granted(here);
    assert.equal(at.searchParams.get('iss'), url);
  });
  await attacked('CSRF: a form of another session, or of none, decides nothing', async () => {
    const [agent, browser, other] = [await client(here), new Browser(), new Browser()];
    const { page } = await browser.go((await agent.ask({ scope: 'orders.read' })).page);
    await other.go(`${url}/`);
    for (const attacker of [other, new Browser()]) {
      const { status } = await consent(attacker, here, page, { t0: 'on' });
      assert.equal(status, 403);
    }
    const { page: list } = await other.go(`${url}/`);
    const form = list.match(/name="form" value="([^"]+)"/)[1];
    const { status } = await browser.go(`${url}/sign-out`, { form: new URLSearchParams({ form }) });
    assert.equal(status, 403);
  });
  await attacked('session fixation: signing in always gives a new session, and only to the browser that left', async () => {
    const [agent, browser, victim] = [await client(here), new Browser(), new Browser()];
    const callback = await browser.go((await agent.ask({ scope: 'orders.read' })).page, { until: `${url}/callback` });
    assert.equal((await victim.go(callback.url)).status, 403);
    browser.set(url, 'credence-session', 'planted');
    const { status } = await browser.go((await agent.ask({ scope: 'orders.read' })).page);
    assert.equal(status, 200);
    assert.notEqual(browser.get(url, 'credence-session'), 'planted');
  });
  await attacked('clickjacking and scripts: no page may be framed, or run one', async () => {
    const [agent, browser] = [await client(here, 'other'), new Browser()];
    const { page, headers } = await browser.go((await agent.ask({ scope: 'orders.read' })).page);
    assert.match(headers.get('content-security-policy'), /^default-src 'none'; .*frame-ancestors 'none'/);
    assert.equal(headers.get('x-frame-options'), 'DENY');
    assert.doesNotMatch(page, /<script>|<b>/);
    assert.match(page, /&#60;b&#62;Ada/);
  });
  await attacked('refresh reuse: a refresh token that was used before ends the grant', async () => {
    const { agent, tokens } = await granted(here);
    const second = await agent.refresh(tokens);
    const third = await agent.refresh(second);
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
    await assert.rejects(agent.refresh(third), isError('invalid_grant'));
    await until('its token to be denied', async () => (await agent.status(third, `${origin}/orders/1`)) === 401);
  });
  await attacked('a stolen refresh token is worth nothing without the key', async () => {
    const [{ tokens }, thief] = [await granted(here), await client(here)];
    await assert.rejects(thief.refresh(tokens), isError('invalid_grant'));
  });
  await attacked('a pushed request counts once, and only for its client', async () => {
    const [agent, browser] = [await client(here), new Browser()];
    const { page } = await agent.ask({ scope: 'orders.read' });
    const stolen = page.replace('client_id=planner', 'client_id=other');
    assert.equal((await fetch(stolen, { redirect: 'manual' })).status, 400);
    const again = await agent.ask({ scope: 'orders.read' });
    await browser.go(again.page);
    assert.equal((await browser.go(again.page)).status, 400);
  });
  await attacked('what is typed into the form cannot widen the grant', async () => {
    const [agent, browser] = [await client(here), new Browser()];
    const { page } = await browser.go((await agent.ask({ scope: 'orders.write' })).page);
    const wide = { t0: 'on', t0a0v0: 'on', t0a0only: '9', t1: 'on', seconds: '99999999' };
    const { page: again } = await consent(browser, here, page, wide);
    assert.match(again, /choose how long/);
  });
}
