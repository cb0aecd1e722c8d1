// Ways to get authority from Credence's issuer, to use it, and to lose it.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { decodeJwt, exportJWK, importJWK } from 'jose';
import * as attack from './attack.mjs';
import { fetchWith } from './certificates.mjs';
import {
  MESH_HOST, allow, browserOf, client, consent, credence, details, granted, isError, listed, revoke, withdraw,
} from './consent.mjs';
import { authlibGrant } from './peers.mjs';
import { until } from './processes.mjs';
import { grant } from './report.mjs';

export async function grants(here) {
  await keysArrive(here);
  await codes(here);
  await clients(here);
  await delegations(here);
  await endings(here);
  await authlib(here);
}

/** Waits until every worker of Envoy has the keys of both issuers, which the control plane fetches. */
async function keysArrive({ secure, ...plain }) {
  for (const here of [plain, secure]) {
    const { tokens } = await granted(here, { agent: await client(here, 'bearer', { key: null }) });
    const headers = { authorization: `Bearer ${tokens.access_token}` };
    await attack.everywhere(`${here.origin}/bearer`, headers, ({ status }) => status === 200);
  }
}

async function codes(here) {
  const { origin, tlsOrigin } = here;
  await grant('code, PKCE, PAR, DPoP: the service accepts what the person left', async () => {
    const asked = { scope: 'orders.read', resource: origin };
    const { agent, tokens } = await granted(here, { asked, ticked: { t0: 'on', t0a0only: '7' } });
    assert.equal(tokens.token_type, 'dpop');
    assert.equal(await agent.status(tokens, `${origin}/orders/7`), 200);
    assert.equal(await agent.status(tokens, `${origin}/orders/8`), 403);
    assert.equal(await agent.status(tokens, `${origin}/orders/7`, 'PUT'), 403);
  });
  await grant('code, with the request in the URL', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const request = await agent.askInUrl({ scope: 'orders.read' });
    const tokens = await agent.redeem(await allow(here, browser, request), request);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`, 'PUT'), 403);
  });
  await grant('refresh: another token, for the same', async () => {
    const { agent, tokens } = await granted(here);
    const next = await agent.refresh(tokens);
    assert.equal(await agent.status(next, `${origin}/orders/1`), 200);
    assert.equal(await agent.status(next, `${origin}/orders/1`, 'PUT'), 403);
    assert.notEqual(next.refresh_token, tokens.refresh_token);
  });
  await grant('RAR (RFC 9396): details that the person narrows', async () => {
    const tools = { 'orders.write': { id: { constraint_type: 'one_of', values: ['1', '2'] } } };
    const asked = { authorization_details: details(tools) };
    const { agent, tokens } = await granted(here, { asked, ticked: { t0: 'on', t0a0v1: 'on' } });
    const [{ tools: left }] = tokens.authorization_details;
    assert.deepEqual(left, { 'orders.write': { id: { constraint_type: 'one_of', values: ['2'] } } });
    assert.equal(await agent.status(tokens, `${origin}/orders/2`, 'PUT'), 200);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`, 'PUT'), 403);
  });
  await grant('resource (RFC 8707): only services that policy and the grant have', async () => {
    const { agent, browser, tokens } = await granted(here, { asked: { scope: 'orders.read', resource: origin } });
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200);
    await assert.rejects(agent.refresh(tokens, { resource: tlsOrigin }), isError('invalid_target'));
    const foreign = await agent.ask({ scope: 'orders.read', resource: tlsOrigin });
    const { url } = await browser.go(foreign.page, { until: here.redirect });
    assert.equal(url.searchParams.get('error'), 'invalid_target');
  });
  await grant('a program on the machine of the person, at any port (RFC 8252)', async () => {
    const redirect = here.redirect.replace(/:\d+/, ':1');
    const [agent, browser] = [await client(here, 'planner', { redirect }), browserOf(here)];
    const request = await agent.ask({ scope: 'orders.read' });
    const tokens = await agent.redeem(await allow(here, browser, request, { t0: 'on' }, redirect), request);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`, 'PUT'), 403);
  });
}

async function clients(here) {
  const { origin, tlsOrigin, secure } = here;
  await grant('a client that signs assertions (private_key_jwt)', async () => {
    const { agent, tokens } = await granted(here, { agent: await client(here, 'signer') });
    const next = await agent.refresh(tokens);
    assert.equal(await agent.status(next, `${origin}/orders/1`), 200);
    assert.equal(await agent.status(next, `${origin}/orders/1`, 'PUT'), 403);
  });
  await grant('a client with a certificate (RFC 8705): its tokens are bound to it', async () => {
    const certificate = await here.authority.signed('mesh', `DNS:${MESH_HOST}`);
    const send = fetchWith(here.authority, certificate);
    const { tokens } = await granted(secure, { agent: await client(secure, 'mesh', { key: null, send }) });
    assert.equal(tokens.token_type, 'bearer');
    const headers = { authorization: `Bearer ${tokens.access_token}` };
    const status = async (method, presented) => (await attack.send(`${tlsOrigin}/mtls`, headers, method, presented)).status;
    assert.equal(await status('GET', certificate), 200);
    assert.equal(await status('GET', undefined), 401);
    const elsewhere = await attack.send(`${origin}/bearer`, headers);
    assert.deepEqual([elsewhere.status, elsewhere.reason], [401, 'audience_mismatch']);
  });
  await grant('a client that only its document describes', async () => {
    const id = here.documents.publish('/visitor.json', { redirect_uris: [here.redirect] });
    const [agent, browser] = [await client(secure, id), browserOf(secure)];
    const request = await agent.ask({ scope: 'orders.read' });
    const { page } = await browser.go(request.page);
    assert.match(page, /It calls itself Visitor\. <strong>127\.0\.0\.1<\/strong> vouches for that\./);
    const { url } = await consent(browser, secure, page, { t0: 'on' }, here);
    const tokens = await agent.redeem(url, request);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`, 'PUT'), 403);
  });
  await grant('bearer tokens, only where policy says so', async () => {
    const { agent, tokens } = await granted(here, { agent: await client(here, 'bearer', { key: null }) });
    assert.equal(tokens.token_type, 'bearer');
    assert.equal(await agent.status(tokens, `${origin}/bearer`), 200);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 401);
    const refused = granted(here, { agent: await client(here, 'planner', { key: null }) });
    await assert.rejects(refused, isError('invalid_request'));
  });
}

/** A root AAT for an agent, and one that the agent derives for a worker. */
async function delegated(here) {
  const keys = {};
  for (const name of ['agent', 'worker']) {
    keys[name] = join(here.folder, `${name}-${crypto.randomUUID()}.jwk`);
    await credence(here, 'keygen', '--out', keys[name]);
  }
  const { alg, ...jwk } = JSON.parse(readFileSync(keys.agent, 'utf8'));
  const key = {
    privateKey: await importJWK(jwk, 'Ed25519'),
    publicKey: await importJWK({ ...jwk, d: undefined }, 'Ed25519', { extractable: true }),
  };
  const agent = await client(here, 'planner', { key });
  const more = { req_cnf: JSON.stringify({ jwk: await exportJWK(key.publicKey) }) };
  const tools = { 'orders.read': { id: { constraint_type: 'wildcard' } } };
  const asked = { authorization_details: details(tools, { del_max_depth: 1 }) };
  const found = await granted(here, { agent, asked, ticked: { t0: 'on', depth: '1' }, more });
  const root = found.tokens.access_token;
  const only = JSON.stringify({ id: { constraint_type: 'exact', value: '7' } });
  const derived = await credence(
    here, 'derive', '--parent', root, '--key', keys.agent, '--holder', keys.worker, '--tool', `orders.read=${only}`);
  const use = async (chain, holder, id, proved = chain) => {
    const proof = await credence(
      here, 'prove', '--chain', proved, '--key', keys[holder], '--audience', here.origin,
      '--tool', 'orders.read', '--arg', `id=${id}`);
    return attack.send(`${here.origin}/delegated/${id}`, { delegation: chain, 'delegation-proof': proof });
  };
  return { ...found, more, root, derived, use };
}

async function delegations(here) {
  await grant('a root AAT (req_cnf): the agent proves each use, and hands on less', async () => {
    const { agent, tokens, more, root, derived, use } = await delegated(here);
    assert.equal(tokens.token_type, 'aat');
    for (const id of [7, 8]) assert.equal((await use(root, 'agent', id)).status, 200);
    assert.equal((await use(derived, 'worker', 7)).status, 200);
    assert.equal((await use(derived, 'worker', 8)).status, 403);
    assert.equal((await use(derived, 'agent', 7, root)).status, 401, 'with a proof for the root');
    const next = await agent.refresh(tokens, more);
    assert.equal(next.token_type, 'aat');
    assert.equal((await use(next.access_token, 'agent', 7)).status, 200);
  });
  await grant('a root AAT: taken back, also from whom it was handed on to', async () => {
    const { browser, root, derived, use } = await delegated(here);
    assert.equal((await use(derived, 'worker', 7)).status, 200);
    await withdraw(here, browser, await listed(here, browser));
    for (const [chain, holder] of [[root, 'agent'], [derived, 'worker']]) {
      const { status, reason } = await use(chain, holder, 7);
      assert.deepEqual([status, reason], [401, 'revoked_delegation'], holder);
    }
  });
}

async function endings(here) {
  const { origin } = here;
  await grant('the person takes it back: the next request is denied', async () => {
    const { agent, browser, tokens } = await granted(here);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200);
    // What it did last comes from the ledger, which has it a moment later.
    const found = await until('the use to be listed', async () => {
      const list = await listed(here, browser);
      return /Last use: .* UTC, use orders.read \(allowed\)/.test(list.page.split('</section>')[0]) && list;
    });
    const after = await withdraw(here, browser, found);
    assert.match(after.page, /Taken back\. No service accepts it any more\./);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 401);
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
  });
  await grant('the client gives it up (RFC 7009)', async () => {
    const { agent, tokens } = await granted(here);
    await agent.revoke(tokens.refresh_token);
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 401);
  });
  await grant('introspection (RFC 7662): active, until it is taken back', async () => {
    const [service, { browser, tokens }] = [await client(here, 'service'), await granted(here)];
    const { active, sub, client_id: id, aud, cnf } = await service.introspect(tokens.access_token);
    assert.deepEqual({ active, sub, id, aud }, { active: true, sub: 'ada', id: 'planner', aud: origin });
    assert.equal(typeof cnf.jkt, 'string');
    await withdraw(here, browser, await listed(here, browser));
    assert.deepEqual(await service.introspect(tokens.access_token), { active: false });
  });
  await grant('deprovisioning: of a person whom the provider disables, nothing is left', async () => {
    const { agent, browser, tokens } = await granted(here, { person: 'eve' });
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 200);
    const { page } = await browser.go((await agent.ask({ scope: 'orders.read' })).page);
    await revoke(here, { principal: { issuer: here.oidc.issuer, subject: 'eve' }, action: 'disable' });
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 401);
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
    const refused = await consent(browser, here, page, { t0: 'on' }, here);
    assert.deepEqual([refused.status, /Your account is disabled/.test(refused.page)], [403, true]);
  });
  await grant('a revocation of the person ends grants and sessions; a new sign-in can grant again', async () => {
    const { agent, browser, tokens } = await granted(here, { person: 'fay' });
    const { page } = await browser.go((await agent.ask({ scope: 'orders.read' })).page);
    await revoke(here, { principal: { issuer: here.oidc.issuer, subject: 'fay' } });
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
    const refused = await consent(browser, here, page, { t0: 'on' }, here);
    assert.deepEqual([refused.status, /Begin again/.test(refused.page)], [403, true]);
    const next = await granted(here, { browser });
    assert.equal((await browser.go(`${here.url}/`)).page.match(/Take it back/g).length, 1);
    await agent.revoke(next.tokens.refresh_token);
  });
  await grant('a revocation of a token by an operator ends its grant', async () => {
    const { agent, tokens } = await granted(here);
    const { iss: issuer, sub: subject, jti: id } = decodeJwt(tokens.access_token);
    await revoke(here, { delegation: { issuer, subject, id } });
    assert.equal(await agent.status(tokens, `${origin}/orders/1`), 401);
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'));
  });
  await grant('the person refuses', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const request = await agent.ask({ scope: 'orders.read' });
    const { page } = await browser.go(request.page);
    const back = await consent(browser, here, page, {}, { ...here, decision: 'refuse' });
    await assert.rejects(agent.redeem(back.url, request), isError('access_denied'));
  });
  await grant('nothing is ticked beforehand, and nothing ticked grants nothing', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const { page } = await browser.go((await agent.ask({ scope: 'orders.read orders.write' })).page);
    assert.doesNotMatch(page, /checked/);
    assert.match((await consent(browser, here, page, {}, here)).page, /choose at least one thing to allow/);
  });
  await grant('policy: what no rule allows cannot be granted', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const request = await agent.ask({ scope: 'orders.admin' });
    const back = await browser.go(request.page, { until: here.redirect });
    await assert.rejects(agent.redeem(back.url, request), isError('access_denied'));
  });
}

async function authlib(here) {
  const { origin, tlsOrigin, secure, keys } = here;
  const certificate = await here.authority.signed('authlib', `DNS:${MESH_HOST}`);
  const signer = { ...(await exportJWK(keys.signer.privateKey)), kid: 'one' };
  const tls = { cert: [certificate.cert, certificate.key], ca: here.authority.cert, service_ca: here.certificate.cert };
  const order = { urls: [`${origin}/orders/7`, `${origin}/orders/8`], expected: [200, 403] };
  const ticked = { t0: 'on', t0a0only: '7' };
  for (const [what, at, { expected, ...task }] of [
    ['code with PKCE, and refresh; DPoP ES256', here, { id: 'planner', dpop: 'ES256', ...order }],
    ['the request is pushed; DPoP Ed25519', here, { id: 'planner', dpop: 'Ed25519', push: true, ...order }],
    ['private_key_jwt; DPoP ES256', here, { id: 'signer', key: signer, dpop: 'ES256', push: true, ...order }],
    ['a client certificate', secure, {
      id: 'mesh', push: true, ...tls, urls: [`${tlsOrigin}/mtls`, `${origin}/bearer`], expected: [200, 401],
    }],
    ['bearer', here, { id: 'bearer', urls: [`${origin}/bearer`, `${origin}/orders/7`], expected: [200, 401] }],
  ]) {
    await grant(`Authlib: ${what}`, async () => {
      const visit = (page) => allow(at, browserOf(at), { page }, ticked);
      const found = await authlibGrant({ issuer: at.url, redirect: at.redirect, scope: 'orders.read', ...task }, visit);
      assert.deepEqual(found, { first: expected, refreshed: expected }, 'within the grant, and beyond it');
    });
  }
}
