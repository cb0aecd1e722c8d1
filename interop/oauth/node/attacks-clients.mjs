// Attacks by a client on another one, by documents of clients, and on what the issuer answers to clients.

import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { SignJWT, decodeJwt, exportJWK, generateKeyPair } from 'jose';
import * as attack from './attack.mjs';
import { authority as authorityOf, fetchWith } from './certificates.mjs';
import { MESH_HOST, allow, client, granted, isError, listed, withdraw } from './consent.mjs';
import { startTrap } from './documents.mjs';
import { READ, code, get, post, proofFor, prover, refusal, seconds } from './raw.mjs';
import { attacked } from './report.mjs';
import * as web from './web.mjs';

export async function clientAttacks(here) {
  await impersonation(here);
  await documents(here);
  await proofs(here);
  await answers(here);
}

// === Clients ===

async function impersonation(here) {
  const { origin, secure, keys } = here;
  await attacked('client impersonation: codes and refresh tokens count only for their client', async () => {
    const { agent, tokens } = await granted(here);
    const thief = await client(here, 'other');
    await assert.rejects(thief.refresh(tokens), isError('invalid_grant'));
    await thief.revoke(tokens.refresh_token);
    await thief.revoke(tokens.access_token);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200, 'another client cannot revoke it');
    const own = await code(here);
    const redeem = async (client_id) =>
      post(here, '/token', { ...own, client_id }, await proofFor(here, '/token'));
    assert.deepEqual(refusal(await redeem('other')), [400, 'invalid_grant']);
    assert.equal((await redeem('planner')).status, 200);
  });
  const assertion = async ({ key = keys.signer.privateKey, alg = 'ES256', typ, without, ...changes }) => {
    const times = { iat: seconds(), exp: seconds() + 60 };
    const claims = { iss: 'signer', sub: 'signer', aud: here.url, jti: crypto.randomUUID(), ...times, ...changes };
    delete claims[without];
    return new SignJWT(claims).setProtectedHeader({ alg, ...(typ && { typ }) }).sign(key);
  };
  const type = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';
  const authenticated = async (client_assertion, changes) => refusal(await post(here, '/token', {
    grant_type: 'refresh_token', refresh_token: 'x', client_id: 'signer',
    client_assertion, client_assertion_type: type, ...changes,
  }));
  // The client is known; its refresh token is not.
  const ACCEPTED = [400, 'invalid_grant'];
  const REFUSED = [401, 'invalid_client'];
  await attacked('client impersonation: an assertion that the client did not make for this issuer, now', async () => {
    const stranger = await generateKeyPair('ES256');
    const secret = Buffer.from(JSON.stringify(await exportJWK(keys.signer.publicKey)));
    const unsigned = [{ alg: 'none' }, { iss: 'signer', sub: 'signer', aud: here.url, jti: 'x', exp: seconds() + 60 }]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    for (const [what, changes] of Object.entries({
      'another key': { key: stranger.privateKey },
      'the key of another client': { key: keys.service.privateKey },
      'the public key as a secret': { key: secret, alg: 'HS256' },
      'another audience': { aud: 'https://evil.example' },
      'a second audience': { aud: [here.url, 'https://evil.example'] },
      'no audience': { without: 'aud' },
      'another issuer': { iss: 'other' },
      'another subject': { sub: 'other' },
      expired: { iat: seconds() - 120, exp: seconds() - 60 },
      'made long ago': { iat: seconds() - 600, exp: seconds() + 60 },
      'without end': { without: 'exp' },
      'of the future': { iat: seconds() + 120, exp: seconds() + 180 },
      'without an id': { without: 'jti' },
    })) {
      assert.deepEqual(await authenticated(await assertion(changes)), REFUSED, what);
    }
    assert.deepEqual(await authenticated(`${unsigned}.`), REFUSED);
    assert.deepEqual(await authenticated(await assertion({}), { client_assertion_type: 'x' }), REFUSED);
    assert.deepEqual(await authenticated(await assertion({}), { client_id: 'planner' }), REFUSED, 'for a public client');
    assert.deepEqual(await authenticated(await assertion({}), { client_id: 'service' }), REFUSED, 'for another client');
    assert.deepEqual(await authenticated('', { client_secret: 'x' }), REFUSED, 'a secret instead');
    assert.deepEqual(await authenticated(''), REFUSED, 'none');
    const once = await assertion({});
    assert.deepEqual(await authenticated(once), ACCEPTED);
    assert.deepEqual(await authenticated(once), REFUSED, 'replayed');
  });
  await attacked('cross-JWT confusion: no token is an assertion, and no assertion is a token', async () => {
    const { tokens } = await granted(here);
    const relying = await web.client({ issuer: here.oidc.issuer, id: 'web', secret: here.secret });
    const { id_token: idToken } = await relying.code('openid orders.read', origin, here.redirect);
    const confused = { typ: 'at+jwt', aud: origin, scope: 'orders.read', client_id: 'signer' };
    const own = await prover();
    const { dpop } = await proofFor(here, '/token');
    const proof = await own.proof(`${here.url}/token`);
    const req_cnf = JSON.stringify({ jwk: own.jwk });
    const delegation = await post(here, '/token', { ...(await code(here)), req_cnf }, proof);
    assert.equal(delegation.body.token_type, 'aat');
    const { access_token: aat } = delegation.body;
    const others = { 'a refresh token': tokens.refresh_token, 'a proof': dpop, 'an ID token': idToken };
    for (const [what, token] of Object.entries({ 'an access token': tokens.access_token, 'an AAT': aat, ...others })) {
      assert.deepEqual(await authenticated(token), REFUSED, what);
    }
    const assertions = {
      'an assertion': await assertion({}),
      'an assertion like a token': await assertion({ ...confused, iss: here.url }),
    };
    for (const [what, token] of Object.entries({ ...assertions, 'an AAT': aat, ...others })) {
      const { status } = await attack.send(`${origin}/bearer`, { authorization: `Bearer ${token}` });
      assert.equal(status, 401, `${what} as an access token`);
    }
    for (const [what, delegation] of Object.entries({ ...assertions, 'an access token': tokens.access_token, ...others })) {
      const { status } = await attack.send(`${origin}/delegated/7`, { delegation, 'delegation-proof': dpop });
      assert.equal(status, 401, `${what} as a delegation`);
    }
    const service = await client(here, 'service');
    for (const [what, token] of Object.entries({ ...assertions, ...others })) {
      assert.deepEqual(await service.introspect(token), { active: false }, what);
    }
  });
  await attacked('client impersonation: another certificate, or none', async () => {
    const parameters = { grant_type: 'refresh_token', refresh_token: 'x', client_id: 'mesh' };
    const { authority } = here;
    for (const [what, certificate, expected] of [
      ['its own', await authority.signed('own', `DNS:${MESH_HOST}`), ACCEPTED],
      ['none', undefined, REFUSED],
      ['of another host', await authority.signed('elsewhere', 'DNS:evil.test'), REFUSED],
      ['of a host below', await authority.signed('below', `DNS:x.${MESH_HOST}`), REFUSED],
      ['of every host', await authority.signed('wildcard', 'DNS:*.test'), REFUSED],
      ['with the name elsewhere', await authority.signed(MESH_HOST, 'DNS:evil.test'), REFUSED],
    ]) {
      const answer = await post({ ...secure, fetch: fetchWith(authority, certificate) }, '/token', parameters);
      assert.deepEqual(refusal(answer), expected, what);
    }
    const stranger = await authorityOf(here.folder, 'stranger');
    const forged = fetchWith(authority, await stranger.signed('forged', `DNS:${MESH_HOST}`));
    await assert.rejects(post({ ...secure, fetch: forged }, '/token', parameters), 'a certificate of another authority');
  });
}

async function documents(here) {
  const { secure, redirect, documents: server } = here;
  const redirect_uris = [redirect];
  const refused = async (at, id) => {
    const query = new URLSearchParams({ client_id: id, redirect_uri: redirect, response_type: 'code' });
    const { status, location, page } = await get(at, `/authorize?${query}`);
    assert.deepEqual([status, location], [400, null], id);
    const answer = await post(at, '/token', { grant_type: 'refresh_token', refresh_token: 'x', client_id: id });
    assert.deepEqual(refusal(answer), [401, 'invalid_client'], id);
    return page;
  };
  await attacked('client impersonation: a document that is not about its own URL, or has keys of another host', async () => {
    const signed = { token_endpoint_auth_method: 'private_key_jwt', redirect_uris };
    for (const [path, document] of Object.entries({
      '/of-another.json': { client_id: 'https://127.0.0.1/visitor.json', redirect_uris },
      '/known.json': { client_id: 'planner', redirect_uris },
      '/with-secret.json': { client_secret: 'x', redirect_uris },
      '/keys-elsewhere.json': { ...signed, jwks_uri: 'https://localhost/keys' },
      '/both.json': { ...signed, jwks: { keys: [] }, jwks_uri: `${server.base}/keys` },
      '/no-redirect.json': {},
      '/script.json': { redirect_uris: ['javascript:alert(1)'] },
      '/plain.json': { redirect_uris: ['http://client.example/cb'] },
    })) {
      await refused(secure, server.publish(path, document));
    }
    server.publish('/visitor.json', { redirect_uris });
    for (const other of ['/visitor.json?', '/x/../visitor.json', '/%76isitor.json', '/visitor.json#x', '//visitor.json']) {
      await refused(secure, server.base + other);
    }
    await refused(secure, `${server.base}/visitor.json`.replace('//', '//user@'));
  });
  await attacked('SSRF by metadata: no private address is connected to', async () => {
    const hasSix = Object.values(networkInterfaces()).flat().some(({ address }) => address === '::1');
    const traps = await Promise.all(['127.0.0.1', ...(hasSix ? ['::1'] : [])].map(startTrap));
    for (const { port } of traps) {
      for (const host of [
        '127.0.0.1', '127.0.0.2', '127.1', '0x7f000001', '2130706433', '0.0.0.0', 'localhost', 'localhost.', '[::1]', '[::]',
        '[::ffff:127.0.0.1]', '[::ffff:7f00:1]',
      ]) {
        await refused(here, `https://${host}:${port}/client.json`);
        if (host !== '127.0.0.1') await refused(secure, `https://${host}:${port}/client.json`);
      }
      await refused(here, `http://127.0.0.1:${port}/client.json`);
    }
    for (const host of ['169.254.169.254', '10.0.0.1', '192.168.0.1', '[fd00::1]', '[fe80::1]', 'metadata.internal']) {
      await refused(here, `https://${host}/client.json`);
    }
    assert.deepEqual(traps.map((trap) => trap.connections()), traps.map(() => 0));
    // The trap works.
    await assert.rejects(fetch(`http://127.0.0.1:${traps[0].port}`));
    assert.equal(traps[0].connections(), 1);
    traps.forEach((trap) => trap.stop());
  });
  await attacked('SSRF by metadata: redirects are not followed, large and slow documents are not read', async () => {
    const trap = await startTrap('127.0.0.1');
    const target = `https://127.0.0.1:${trap.port}/`;
    const elsewhere = (response) => response.writeHead(302, { location: target }).end();
    const fat = JSON.stringify({ padding: 'x'.repeat(8_000) });
    const pages = [];
    for (const [path, answer] of Object.entries({
      '/moved.json': elsewhere,
      '/large.json': (response) => response.end(fat),
      '/endless.json': (response) => response.write('{'),
      '/gone.json': (response) => response.writeHead(404).end(),
      '/closed.json': (response) => response.destroy(),
    })) {
      pages.push(await refused(secure, server.serve(path, answer)));
    }
    server.serve('/moved-keys', elsewhere);
    const document = { token_endpoint_auth_method: 'private_key_jwt', jwks_uri: `${server.base}/moved-keys`, redirect_uris };
    pages.push(await refused(secure, server.publish('/keys-moved.json', document)));
    assert.equal(new Set(pages).size, 1, 'the answer does not say what is there');
    assert.match(pages[0], /the client&#39;s document cannot be read/);
    assert.ok(server.requests.includes('/moved.json') && server.requests.includes('/moved-keys'));
    assert.equal(trap.connections(), 0);
    trap.stop();
  });
}

// === Tokens ===

async function proofs(here) {
  const { origin } = here;
  const endpoint = `${here.url}/token`;
  await attacked('DPoP: a proof that was used, or is for another request, gives no token', async () => {
    const own = await prover();
    const used = await own.proof(endpoint);
    assert.equal((await post(here, '/token', await code(here), used)).status, 200);
    const parameters = await code(here);
    for (const [what, headers] of [
      ['used before', used],
      ['for another endpoint', await own.proof(`${here.url}/par`)],
      ['for another server', await own.proof(`${origin}/token`)],
      ['for another method', await own.proof(endpoint, { htm: 'GET' })],
      ['from long ago', await own.proof(endpoint, { iat: seconds() - 600 })],
      ['of the future', await own.proof(endpoint, { iat: seconds() + 600 })],
      ['no proof', { dpop: 'x' }],
    ]) {
      assert.deepEqual(refusal(await post(here, '/token', parameters, headers)), [400, 'invalid_dpop_proof'], what);
    }
    const two = [['dpop', (await own.proof(endpoint)).dpop], ['dpop', (await own.proof(endpoint)).dpop]];
    assert.deepEqual(refusal(await post(here, '/token', parameters, two)), [400, 'invalid_dpop_proof'], 'two');
    assert.equal((await post(here, '/token', parameters, await own.proof(endpoint))).status, 200);
  });
  await attacked('a delegation only for a key that the client shows (req_cnf)', async () => {
    const [own, parameters] = [await prover(), await code(here)];
    const stranger = await exportJWK((await generateKeyPair('ES256')).publicKey);
    for (const jwk of [stranger, { kty: 'oct', k: 'x' }, undefined]) {
      const req_cnf = JSON.stringify({ jwk });
      const answer = await post(here, '/token', { ...parameters, req_cnf }, await own.proof(endpoint));
      assert.deepEqual(refusal(answer), [400, 'invalid_request']);
    }
    const req_cnf = JSON.stringify({ jwk: stranger });
    const unproved = await post(here, '/token', { ...parameters, req_cnf });
    assert.deepEqual(refusal(unproved), [400, 'invalid_request']);
  });
}

async function answers(here) {
  const { origin, url } = here;
  await attacked('introspection: only by services, which learn only of valid tokens', async () => {
    const { tokens } = await granted(here);
    await assert.rejects((await client(here)).introspect(tokens.access_token), isError('unauthorized_client'));
    await assert.rejects((await client(here, 'signer')).introspect(tokens.access_token), isError('unauthorized_client'));
    assert.deepEqual(refusal(await post(here, '/introspect', { token: tokens.access_token })), [401, 'invalid_client']);
    const service = await client(here, 'service');
    const { cnf, aud } = await service.introspect(tokens.access_token);
    const claims = decodeJwt(tokens.access_token);
    // Otherwise a service takes a stolen token for a bearer.
    assert.deepEqual({ cnf, aud }, { cnf: claims.cnf, aud: origin });
    const [header, , signature] = tokens.access_token.split('.');
    const payload = Buffer.from(JSON.stringify({ ...claims, sub: 'eve' })).toString('base64url');
    for (const token of [`${header}.${payload}.${signature}`, tokens.refresh_token, 'x']) {
      assert.deepEqual(await service.introspect(token), { active: false });
    }
  });
  await attacked('enumeration: what is unknown and what belongs to another is answered alike', async () => {
    const { agent, browser, tokens } = await granted(here);
    const foreign = await granted(here, { agent: await client(here, 'other'), person: 'mallory' });
    const same = (found, expected) => assert.deepEqual(
      [found.status, Object.keys(found.body), found.body.error, found.body.error_description],
      [expected.status, Object.keys(expected.body), expected.body.error, expected.body.error_description]);
    const token = async (parameters) => post(here, '/token', parameters, await proofFor(here, '/token'));
    const redeem = async (changes) => token({ ...(await code(here)), ...changes });
    const { code: others } = await code(here, 'other');
    same(await redeem({ code: others }), await redeem({ code: 'x' }));
    const refresh = (refresh_token) => token({ grant_type: 'refresh_token', client_id: 'planner', refresh_token });
    same(await refresh(foreign.tokens.refresh_token), await refresh('x'));
    const revoke = (token) => post(here, '/revoke', { client_id: 'planner', token });
    for (const token of [foreign.tokens.refresh_token, foreign.tokens.access_token, tokens.refresh_token]) {
      same(await revoke(token), await revoke('x'));
    }
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'), 'its own was revoked');
    await foreign.agent.refresh(foreign.tokens);
    const [{ form }, { grant }] = [await listed(here, browser), await listed(here, foreign.browser)];
    const theirs = await withdraw(here, browser, { form, grant });
    const none = await withdraw(here, browser, { form, grant: crypto.randomUUID() });
    assert.deepEqual([theirs.status, theirs.page], [400, none.page]);
    await foreign.agent.refresh(foreign.tokens);
    const uri = (request) => new URL(request.page).searchParams.get('request_uri');
    const pages = [uri(await foreign.agent.ask(READ)), 'urn:ietf:params:oauth:request_uri:x', 'x'].map((request_uri) =>
      get(here, `/authorize?${new URLSearchParams({ client_id: 'planner', request_uri })}`));
    assert.equal(new Set((await Promise.all(pages)).map(({ status, page }) => `${status} ${page}`)).size, 1);
  });
  await attacked('no answer with a token, or about one, is kept by a cache', async () => {
    const parameters = await code(here);
    const found = {
      token: await post(here, '/token', parameters, await proofFor(here, '/token')),
      refused: await post(here, '/token', parameters, await proofFor(here, '/token')),
      'unknown client': await post(here, '/token', { client_id: 'nobody' }),
      'no form': await post(here, '/token', '', { 'content-type': 'application/json' }),
      par: await post(here, '/par', (await (await client(here)).askInUrl(READ)).parameters, await proofFor(here, '/par')),
      revoke: await post(here, '/revoke', { client_id: 'planner', token: 'x' }),
      introspect: await post(here, '/introspect', { client_id: 'planner', token: 'x' }),
    };
    assert.deepEqual(Object.values(found).map(({ status }) => status), [200, 400, 401, 400, 201, 200, 400]);
    for (const [what, answer] of Object.entries(found)) {
      assert.equal(answer.headers.get('cache-control'), 'no-store', what);
      assert.equal(answer.headers.get('x-content-type-options'), 'nosniff', what);
      // Clients in browsers, without cookies.
      assert.equal(answer.headers.get('access-control-allow-origin'), '*', what);
      assert.equal(answer.headers.get('access-control-allow-credentials'), null, what);
    }
  });
}
