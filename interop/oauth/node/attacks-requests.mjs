// Attacks on authorization requests, codes and refresh tokens.

import assert from 'node:assert/strict';
import { fields } from './browser.mjs';
import { allow, browserOf, client, consent, details, granted, isError } from './consent.mjs';
import { startTrap } from './documents.mjs';
import { until } from './processes.mjs';
import { READ, asked, code, get, post, proofFor, prover, refusal } from './raw.mjs';
import { attacked } from './report.mjs';

export async function requestAttacks(here) {
  await redirects(here);
  await requests(here);
  await codes(here);
  await refreshTokens(here);
}

// === Requests ===

async function redirects(here) {
  const { redirect, secure } = here;
  await attacked('redirect tricks: people return only to what is registered', async () => {
    const [agent, signer] = [await client(here), await client(here, 'signer')];
    for (const [by, uri] of [
      ...[
        'https://evil.example/', 'javascript:alert(1)', 'data:text/html,x', '/callback', encodeURIComponent(redirect),
        ...['/', '/../x', '%2f..%2fx', '?x=y', '#x', '.evil.example', '%00', '\r\nlocation: x'].map((end) => redirect + end),
        ...[
          '127.0.0.1@evil.example', 'evil.example%2f@127.0.0.1', '127.0.0.1%40evil.example', '127.0.0.1.evil.example',
          '127.0.0.1\\@evil.example', 'localhost', '127.1', '[::1]',
        ].map((host) => redirect.replace('127.0.0.1', host)),
        ...['https:', 'HTTP:', ' http:', ''].map((scheme) => redirect.replace('http:', scheme)),
        redirect.replace('/callback', '@evil.example/callback'),
      ].map((uri) => [agent, uri]),
      ...[
        'https://signer.example:444/callback', 'https://signer.example:443/callback', 'https://x.signer.example/callback',
        'https://signer.example/callback/', 'https://signer.example./callback', 'https://SIGNER.example/callback',
        'https://user@signer.example/callback', 'https://signer.example/%63allback', 'http://signer.example/callback',
      ].map((uri) => [signer, uri]),
    ]) {
      const { status, location } = await asked(here, by, { redirect_uri: uri });
      assert.deepEqual([status, location], [400, null], uri);
      await assert.rejects(by.ask({ ...READ, redirect_uri: uri }), isError('invalid_request'), uri);
    }
  });
  await attacked('open redirect: errors of clients that anyone can make stay on the page', async () => {
    const evil = 'https://evil.example/';
    for (const client_id of ['nobody', 'https://evil.example/client.json', 'javascript:alert(1)']) {
      const query = new URLSearchParams({ client_id, redirect_uri: evil, response_type: 'token', state: 'x' });
      const { status, location } = await get(here, `/authorize?${query}`);
      assert.deepEqual([status, location], [400, null], client_id);
    }
    const id = here.documents.publish('/evil.json', { redirect_uris: [evil] });
    const visitor = await client(secure, id, { redirect: evil });
    for (const changes of [{ scope: 'x' }, { response_type: 'token' }, { code_challenge: '' }, { prompt: 'none' }]) {
      const { status, location } = await asked(secure, visitor, changes);
      assert.deepEqual([status, location], [400, null], JSON.stringify(changes));
    }
    const { status } = await browserOf(secure).go((await visitor.askInUrl({ scope: 'orders.admin' })).page, { until: evil });
    assert.equal(status, 400, 'also of what policy refuses');
  });
  await attacked('a code or error leaves by 303, without the address of the page', async () => {
    const { status, headers, location } = await asked(here, await client(here), { scope: 'x' });
    assert.deepEqual([status, headers.get('referrer-policy')], [303, 'no-referrer']);
    assert.ok(location.startsWith(`${redirect}?error=invalid_scope&`));
  });
}

async function requests(here) {
  const { redirect } = here;
  await attacked('parameter pollution: what is sent twice counts never', async () => {
    const agent = await client(here);
    const { page, parameters } = await agent.askInUrl(READ);
    for (const name of parameters.keys()) {
      const { status, location } = await get(here, `${page.slice(here.url.length)}&${name}=x`);
      assert.deepEqual([status, location], [400, null], name);
      const twice = await post(here, '/par', [...parameters, [name, 'x']]);
      assert.deepEqual(refusal(twice), [400, 'invalid_request'], name);
    }
    const once = await code(here);
    for (const name of Object.keys(once)) {
      const twice = await post(here, '/token', [...Object.entries(once), [name, 'x']]);
      assert.deepEqual(refusal(twice), [400, 'invalid_request'], name);
    }
    const browser = browserOf(here);
    const { page: form } = await browser.go((await agent.ask(READ)).page);
    const decisions = [['decision', 'refuse'], ['decision', 'allow']];
    const body = new URLSearchParams([...Object.entries(fields(form)), ['t0', 'on'], ...decisions]);
    assert.equal((await browser.go(`${here.url}/consent`, { form: body, until: redirect })).status, 400);
  });
  await attacked('a pushed request counts once, for its client, and as it was pushed', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const pushed = async () => (await agent.ask(READ)).page;
    const stolen = (await pushed()).replace('client_id=planner', 'client_id=other');
    assert.equal((await browser.go(stolen)).status, 400);
    const first = await pushed();
    await browser.go(first);
    assert.equal((await browser.go(first)).status, 400);
    const changes = new URLSearchParams({ redirect_uri: 'https://evil.example/', scope: 'orders.write', state: 'evil' });
    const { page } = await browser.go(`${await pushed()}&${changes}`);
    assert.match(page, /orders\.read/);
    assert.doesNotMatch(page, /orders\.write|evil/);
  });
  await attacked('a request_uri cannot be guessed, be fetched, or be pushed', async () => {
    const [agent, trap] = [await client(here), await startTrap('127.0.0.1')];
    const { page } = await agent.ask(READ);
    const genuine = new URL(page).searchParams.get('request_uri');
    assert.match(genuine, /^urn:ietf:params:oauth:request_uri:[\w-]{43}$/);
    const elsewhere = ['http', 'https'].map((scheme) => `${scheme}://127.0.0.1:${trap.port}/`);
    for (const uri of [`${genuine.slice(0, -2)}__`, genuine.slice(0, -43), ...elsewhere]) {
      const query = new URLSearchParams({ client_id: 'planner', request_uri: uri });
      assert.equal((await get(here, `/authorize?${query}`)).status, 400);
    }
    await assert.rejects(agent.ask({ ...READ, request_uri: genuine }), isError('invalid_request'));
    assert.equal(trap.connections(), 0);
    trap.stop();
  });
  await attacked('a request that the client did not sign is not taken for one that it did (RFC 9101)', async () => {
    const unsigned = { ...READ, request: 'eyJhbGciOiJub25lIn0.e30.' };
    await assert.rejects((await client(here)).ask(unsigned), isError('request_not_supported'));
  });
}

// === Codes and refresh tokens ===

async function codes(here) {
  const { origin, redirect } = here;
  await attacked('PKCE downgrade: no challenge, a plain one, or none that is a digest', async () => {
    const agent = await client(here);
    for (const change of [
      { code_challenge: '' }, { code_challenge_method: 'plain' }, { code_challenge_method: '' }, { code_challenge: 'short' },
    ]) {
      await assert.rejects(agent.ask({ ...READ, ...change }), isError('invalid_request'));
      assert.match((await asked(here, agent, change)).location, /[?&]error=invalid_request&/);
    }
  });
  await attacked('PKCE downgrade: a code without its verifier, or with another one', async () => {
    const { code_verifier, ...rest } = await code(here);
    const headers = () => proofFor(here, '/token');
    for (const [verifier, error] of [
      [{}, 'invalid_request'],
      [{ code_verifier: '' }, 'invalid_request'],
      [{ code_verifier: 'a'.repeat(43) }, 'invalid_grant'],
    ]) {
      assert.deepEqual(refusal(await post(here, '/token', { ...rest, ...verifier }, await headers())), [400, error]);
    }
    assert.equal((await post(here, '/token', { ...rest, code_verifier }, await headers())).status, 200);
  });
  await attacked('code injection: a code of another session does not fit the verifier', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const [victim, own] = [await agent.ask(READ), await agent.ask(READ)];
    const at = await allow(here, browser, victim);
    at.searchParams.set('state', own.state);
    await assert.rejects(agent.redeem(at, own), isError('invalid_grant'));
  });
  await attacked('code injection: a code redeemed twice ends its grant', async () => {
    const { agent, at, request, tokens } = await granted(here);
    await assert.rejects(agent.redeem(at, request), isError('invalid_grant'));
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
    await until('its token to be denied', async () => (await agent.status(tokens, `${origin}/orders/1`)) === 401);
  });
  await attacked('code injection: a code with another redirect_uri, or none', async () => {
    const parameters = await code(here);
    const redeem = async (redirect_uri) =>
      post(here, '/token', { ...parameters, redirect_uri }, await proofFor(here, '/token'));
    for (const uri of ['', 'https://evil.example/', redirect.replace(/:\d+/, ':1')]) {
      assert.deepEqual(refusal(await redeem(uri)), [400, 'invalid_grant'], uri);
    }
    assert.equal((await redeem(redirect)).status, 200);
  });
  await attacked('a code that is bound to a key (dpop_jkt) is worth nothing with another one', async () => {
    const [own, thief] = [await prover(), await prover()];
    const parameters = await code(here, 'planner', { dpop_jkt: own.thumbprint });
    const endpoint = `${here.url}/token`;
    assert.deepEqual(refusal(await post(here, '/token', parameters, await thief.proof(endpoint))), [400, 'invalid_grant']);
    assert.equal((await post(here, '/token', parameters, await own.proof(endpoint))).status, 200);
    const other = await client(here);
    // Pushed with a proof of another key.
    await assert.rejects(other.ask({ ...READ, dpop_jkt: own.thumbprint }), isError('invalid_dpop_proof'));
  });
}

async function refreshTokens(here) {
  const { origin } = here;
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
    const parameters = { grant_type: 'refresh_token', client_id: 'planner', refresh_token: tokens.refresh_token };
    assert.deepEqual(refusal(await post(here, '/token', parameters)), [400, 'invalid_request']);
  });
  await attacked('a refresh gives no more than was granted', async () => {
    const { agent, tokens } = await granted(here);
    await assert.rejects(agent.refresh(tokens, { scope: 'orders.read orders.write' }), isError('invalid_scope'));
    await assert.rejects(agent.refresh(tokens, { resource: 'https://evil.example' }), isError('invalid_target'));
    const next = await agent.refresh(tokens, { authorization_details: details({ 'orders.write': {} }) });
    assert.equal(await agent.status(next, `${origin}/orders/1`, 'PUT'), 403);
  });
}
