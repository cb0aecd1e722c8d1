// Attacks on Credence's issuer (RFC 9700, and on its pages), each of which must fail.

import assert from 'node:assert/strict';
import { networkInterfaces } from 'node:os';
import { SignJWT, calculateJwkThumbprint, decodeJwt, exportJWK, generateKeyPair } from 'jose';
import * as attack from './attack.mjs';
import { escaped, fields } from './browser.mjs';
import { authority as authorityOf, fetchWith } from './certificates.mjs';
import {
  MESH_HOST, allow, browserOf, client, consent, granted, isError, listed, markup, withdraw,
} from './consent.mjs';
import { startTrap } from './documents.mjs';
import { until } from './processes.mjs';
import { attacked } from './report.mjs';
import * as web from './web.mjs';

const READ = { scope: 'orders.read' };

export async function attacks(here) {
  await signIns(here);
  await forms(here);
  await pages(here);
  await markups(here);
  await redirects(here);
  await requests(here);
  await codes(here);
  await refreshTokens(here);
  await impersonation(here);
  await documents(here);
  await proofs(here);
  await answers(here);
}

// === What the attacks send ===

/** The answer to a form that a client posts. */
async function post({ url, fetch: send }, path, parameters, headers) {
  const body = new URLSearchParams(parameters);
  const response = await send(url + path, { method: 'POST', body, headers });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text.startsWith('{') ? JSON.parse(text) : text };
}

/** The status and error of an answer. */
const refusal = ({ status, body }) => [status, body.error];

/** The page at a path, as a browser without cookies gets it; it follows no redirect. */
async function get({ url, fetch: send }, path) {
  const response = await send(url + path);
  return { status: response.status, headers: response.headers, location: response.headers.get('location'), page: await response.text() };
}

/** A request in a URL, and its page. */
async function asked(here, agent, changes) {
  const { page } = await agent.askInUrl({ ...READ, ...changes });
  return get(here, page.slice(here.url.length));
}

/** A code that is bound to no key, or as `changes` ask, and what redeems it. */
async function code(here, id = 'planner', changes = {}) {
  const request = await (await client(here, id)).askInUrl({ ...READ, ...changes });
  const at = await allow(here, browserOf(here), request);
  return {
    grant_type: 'authorization_code', client_id: id, code: at.searchParams.get('code'), code_verifier: request.verifier,
    redirect_uri: here.redirect,
  };
}

/** A key for DPoP, and proofs of it. */
async function prover() {
  const { publicKey, privateKey } = await generateKeyPair('ES256');
  const jwk = await exportJWK(publicKey);
  return {
    thumbprint: await calculateJwkThumbprint(jwk),
    async proof(htu, claims = {}) {
      const contents = { htm: 'POST', htu, jti: crypto.randomUUID(), iat: seconds(), ...claims };
      return { dpop: await new SignJWT(contents).setProtectedHeader({ alg: 'ES256', typ: 'dpop+jwt', jwk }).sign(privateKey) };
    },
  };
}

const seconds = () => Math.floor(Date.now() / 1000);

// === Sign-in at the provider ===

async function signIns(here) {
  const { url } = here;
  const away = async (browser) =>
    (await browser.go((await (await client(here)).ask(READ)).page, { until: `${url}/callback` })).url;
  await attacked('mix-up: an answer of another provider, or one that names none, signs nobody in', async () => {
    for (const change of [(query) => query.set('iss', 'https://evil.example'), (query) => query.delete('iss')]) {
      const browser = browserOf(here);
      const genuine = await away(browser);
      const changed = new URL(genuine);
      change(changed.searchParams);
      for (const callback of [changed, genuine]) {
        assert.equal((await browser.go(callback)).status, 403, 'also the genuine one, afterwards');
        assert.equal(browser.get(url, 'credence-session'), undefined);
      }
    }
  });
  await attacked('mix-up: each answer to a client names the issuer (RFC 9207)', async () => {
    const { agent, browser, at } = await granted(here);
    const { url: refused } = await browser.go((await agent.ask({ scope: 'orders.admin' })).page, { until: here.redirect });
    for (const answer of [at, refused]) assert.equal(answer.searchParams.get('iss'), url);
    at.searchParams.set('iss', 'https://evil.example');
    await assert.rejects(agent.redeem(at, await agent.ask(READ)));
  });
  await attacked('code injection: the code of another sign-in does not fit', async () => {
    const [browser, other] = [browserOf(here), browserOf(here, 'mallory')];
    const [callback, foreign] = [await away(browser), await away(other)];
    callback.searchParams.set('code', foreign.searchParams.get('code'));
    assert.equal((await browser.go(callback)).status, 403);
    assert.equal(browser.get(url, 'credence-session'), undefined);
  });
  await attacked('login CSRF: only the browser that left for the provider is signed in', async () => {
    const [browser, victim] = [browserOf(here), browserOf(here)];
    const callback = await away(browser);
    assert.equal((await victim.go(callback)).status, 403);
    assert.equal(victim.get(url, 'credence-session'), undefined);
    const guessed = new URL(callback);
    guessed.searchParams.set('state', 'guessed');
    assert.equal((await browser.go(guessed)).status, 403);
  });
  await attacked('session fixation: a session that someone else has planted is never used', async () => {
    const browser = browserOf(here);
    browser.set(url, 'credence-session', 'planted');
    const { status } = await browser.go((await (await client(here)).ask(READ)).page);
    assert.equal(status, 200);
    assert.notEqual(browser.get(url, 'credence-session'), 'planted');
    const earlier = browser.get(url, 'credence-session');
    const again = await (await client(here)).ask({ ...READ, prompt: 'login' });
    assert.equal((await browser.go(again.page)).status, 200);
    assert.notEqual(browser.get(url, 'credence-session'), earlier, 'each sign-in begins another session');
  });
  await attacked('cookies: no script and no other site gets them, and over https no other host sets them', async () => {
    for (const [at, attributes, prefix] of [
      [here, ['Path=/', 'HttpOnly', 'SameSite=Lax'], ''],
      [here.secure, ['Path=/', 'HttpOnly', 'SameSite=Lax', 'Secure'], '__Host-'],
    ]) {
      const set = [];
      const browser = browserOf({ ...at, fetch: async (...request) => {
        const response = await at.fetch(...request);
        if (String(request[0]).startsWith(at.url)) set.push(...response.headers.getSetCookie());
        return response;
      } });
      await browser.go(`${at.url}/`);
      const names = set.map((cookie) => cookie.split('=')[0]);
      assert.deepEqual(names, ['credence-sign-in', 'credence-session', 'credence-sign-in'].map((name) => prefix + name));
      for (const cookie of set) {
        const [, ...found] = cookie.split('; ').filter((part) => part !== 'Max-Age=0');
        assert.deepEqual(found, attributes);
      }
    }
  });
}

// === Forms ===

async function forms(here) {
  const { url } = here;
  await attacked('CSRF: a form of another session, or of none, does nothing', async () => {
    const { agent, browser, tokens } = await granted(here);
    const other = browserOf(here, 'mallory');
    const own = await listed(here, browser);
    const { form: foreign } = await listed(here, other);
    const { page } = await browser.go((await agent.ask(READ)).page);
    for (const attacker of [other, browserOf(here)]) {
      assert.equal((await consent(attacker, here, page, { t0: 'on' })).status, 403);
    }
    for (const form of [foreign, '', 'guessed']) {
      assert.equal((await withdraw(here, browser, { form, grant: own.grant })).status, 403);
      assert.equal((await browser.go(`${url}/sign-out`, { form: new URLSearchParams({ form }) })).status, 403);
    }
    for (const path of ['/consent', '/withdraw', '/sign-out']) {
      const link = `${url}${path}?${new URLSearchParams({ ...fields(page), decision: 'allow', ...own })}`;
      assert.equal((await browser.go(link)).status, 405, `${path} by a link`);
    }
    await agent.refresh(tokens);
    assert.equal((await browser.go(`${url}/`)).status, 200);
  });
  await attacked('a consent counts once', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const { page } = await browser.go((await agent.ask(READ)).page);
    assert.ok((await consent(browser, here, page, { t0: 'on' }, here)).url.searchParams.get('code'));
    assert.equal((await consent(browser, here, page, { t0: 'on' })).status, 403);
  });
  await attacked('what is typed into the form cannot widen the grant', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const ask = async (changes) => (await browser.go((await agent.ask({ scope: 'orders.write', ...changes })).page)).page;
    const one = { t0: 'on', t0a0v0: 'on' };
    for (const wide of [{ seconds: '99999999' }, { seconds: '-1' }, { depth: '1' }, { depth: '99' }]) {
      assert.match((await consent(browser, here, await ask(), { ...one, ...wide })).page, /role="alert">choose how/);
    }
    const request = await agent.ask({ scope: 'orders.write' });
    const { page } = await browser.go(request.page);
    const more = { t0a0only: '9', t0a0v2: 'on', t1: 'on', t0a1only: 'x', tools: '{}', scope: 'orders.admin' };
    const { url: at } = await consent(browser, here, page, { ...one, ...more }, here);
    const [{ tools }] = (await agent.redeem(at, request)).authorization_details;
    assert.deepEqual(tools, { 'orders.write': { id: { constraint_type: 'one_of', values: ['1'] } } });
  });
}

// === Pages ===

async function pages(here) {
  const { url } = here;
  await attacked('clickjacking: no page may be framed, load or run anything, or be kept', async () => {
    const [agent, browser] = [await client(here), browserOf(here)];
    const request = await agent.ask(READ);
    const shown = { consent: await browser.go(request.page) };
    shown['consent with a problem'] = await consent(browser, here, shown.consent.page, {});
    shown.list = await browser.go(`${url}/`);
    shown['unknown client'] = await get(here, '/authorize?client_id=nobody');
    shown['no session'] = await get(here, '/callback?state=x&code=x');
    shown['to the provider'] = await get(here, '/');
    shown['refused form'] = await withdraw(here, browser, { form: 'x', grant: 'x' });
    shown['grant that is none'] = await withdraw(here, browser, { ...(await listed(here, browser)), grant: crypto.randomUUID() });
    const { form } = await listed(here, browser);
    shown['signed out'] = await browser.go(`${url}/sign-out`, { form: new URLSearchParams({ form }) });
    const policy = /^default-src 'none'; style-src 'self'; form-action 'self'( http:\/\/127\.0\.0\.1:\d+)?; frame-ancestors 'none'; base-uri 'none'$/;
    for (const [what, { headers, status }] of Object.entries(shown)) {
      assert.match(headers.get('content-security-policy') ?? '', policy, `${what} (${status})`);
      const others = ['x-frame-options', 'x-content-type-options', 'referrer-policy', 'cache-control'];
      assert.deepEqual(others.map((name) => headers.get(name)), ['DENY', 'nosniff', 'no-referrer', 'no-store'], what);
    }
  });
  await attacked('clickjacking: what is no page is no HTML', async () => {
    for (const path of ['/nothing', '/style.css', '/jwks', '/token', '/.well-known/oauth-authorization-server']) {
      assert.doesNotMatch((await get(here, path)).headers.get('content-type') ?? '', /html/, path);
    }
  });
}

/** Whether each text is on a page, and none of them as markup. */
function assertEscaped(page, texts) {
  assert.doesNotMatch(page, /<script|<b>/);
  for (const text of texts) assert.ok(page.includes(escaped(text)), `no ${text} in ${page}`);
}

async function markups(here) {
  const { url, secure, redirect } = here;
  const details = {
    [markup('tool')]: {
      [markup('any')]: { constraint_type: 'exact', value: markup('exact') },
      [markup('value')]: { constraint_type: 'one_of', values: [markup('one'), markup('two')] },
      range: { constraint_type: 'range', min: 1, max: 8 },
    },
  };
  const asks = (tools) => ({
    scope: '', authorization_details: JSON.stringify([{ type: 'attenuating_agent_token', tools }]), state: markup('state'),
  });
  await attacked('XSS by a client: its name, tools, arguments, values and state', async () => {
    const [agent, browser] = [await client(here, 'other'), browserOf(here)];
    const { page } = await browser.go((await agent.ask(asks(details))).page);
    assertEscaped(page, ['client', 'tool', 'any', 'exact', 'value', 'one', 'two'].map(markup));
    const ticked = { t0: 'on', t0a0v0: 'on', t0a1v0: 'on', t0a2v0: 'on' };
    const { url: at } = await consent(browser, here, page, ticked, here);
    assert.equal(at.searchParams.get('state'), markup('state'));
    assert.doesNotMatch(at.href, /[<>"']/);
    assertEscaped((await listed(here, browser)).page, ['client', 'tool', 'any', 'exact', 'value', 'one'].map(markup));
  });
  await attacked('XSS by the provider: the name, subject and groups of a person', async () => {
    for (const [person, shown] of [['ada', '<b>Ada</b>'], [markup('sub'), markup('sub')]]) {
      const browser = browserOf(here, person);
      const { page } = await browser.go((await (await client(here)).ask(READ)).page);
      assertEscaped(page, [shown]);
      assertEscaped((await listed(here, browser)).page, [shown]);
    }
    const browser = browserOf(here);
    const { url: callback } = await browser.go(`${url}/`, { until: `${url}/callback` });
    for (const name of ['error', 'error_description']) callback.searchParams.set(name, markup(name));
    const { status, page } = await browser.go(callback);
    assert.equal(status, 403);
    assertEscaped(page, []);
  });
  await attacked('XSS by the person: what they type comes back as text', async () => {
    const [agent, browser] = [await client(here, 'other'), browserOf(here)];
    const { page } = await browser.go((await agent.ask(asks({ ...details, 'orders.read': {} }))).page);
    const typed = Object.fromEntries([0, 1, 2].flatMap((tool) => [0, 1, 2].flatMap((argument) =>
      ['min', 'max', 'only'].map((part) => [`t${tool}a${argument}${part}`, markup(part)]))));
    const again = await consent(browser, here, page, { ...typed, t0: 'on', t1: 'on', t0a0v0: 'on', t0a1v0: 'on', t0a2v0: 'on' });
    assertEscaped(again.page, ['min', 'max', 'only'].map(markup));
    const other = await client(here);
    const request = await other.ask(READ);
    await allow(here, browser, request, { t0: 'on', t0a0only: markup('only') });
    assertEscaped((await listed(here, browser)).page, [markup('only')]);
  });
  await attacked('XSS by errors: parameters that a page has to name', async () => {
    const visitor = await client(secure, here.documents.publish('/errors.json', { redirect_uris: [redirect] }));
    const unknown = (name) => ({ scope: '', authorization_details: JSON.stringify([{ type: 'attenuating_agent_token', tools: {}, [name]: 1 }]) });
    const browser = browserOf(secure);
    // Errors for developers have no quotation marks.
    const named = (text) => markup(text).replace('"', '');
    for (const [changes, texts] of [
      [{ scope: markup('scope') }, []],
      [{ resource: `https://a.example/${markup('resource')}` }, [named('resource')]],
      [asks({ [markup('tool')]: {} }), [named('tool')]],
      [unknown(markup('member')), [named('member')]],
      [{ response_type: markup('type') }, []],
      [{ prompt: 'none', [markup('parameter')]: 'x' }, []],
    ]) {
      const { page, status } = await browser.go((await visitor.askInUrl({ ...READ, ...changes })).page);
      assert.equal(status, 400, JSON.stringify(changes));
      assertEscaped(page, texts);
    }
    const query = new URLSearchParams([['client_id', markup('id')], ['request_uri', markup('uri')]]);
    for (const path of [`/authorize?${query}`, `/authorize?client_id=${query.get('client_id')}`, `/?withdrawn=${query}`]) {
      assertEscaped((await browser.go(secure.url + encodeURI(path))).page, []);
    }
    const { page } = await get(here, `/authorize?${query}&${encodeURIComponent(markup('twice'))}=1&${encodeURIComponent(markup('twice'))}=1`);
    assert.match(page, /sent twice/);
    assertEscaped(page, []);
  });
  await attacked('XSS by a document: its name and redirect', async () => {
    const redirect_uris = [`https://client.example/${markup('path')}`];
    const id = here.documents.publish('/markup.json', { client_name: markup('visitor'), redirect_uris });
    const [agent, browser] = [await client(secure, id, { redirect: redirect_uris[0] }), browserOf(secure)];
    const { page, headers } = await browser.go((await agent.ask(READ)).page);
    assertEscaped(page, [markup('visitor')]);
    assert.match(headers.get('content-security-policy'), /form-action 'self' https:\/\/client\.example; frame/);
  });
  await attacked('header injection: by the host of a redirect, and by state', async () => {
    for (const [index, uri] of [
      'https://a;sandbox/cb', 'https://*/cb', 'https://a,b/cb', 'https://a.example/\r\nset-cookie:x=y', "https://'none'/cb",
    ].entries()) {
      const id = here.documents.publish(`/header-${index}.json`, { redirect_uris: [uri] });
      const { status, headers } = await asked(secure, await client(secure, id, { redirect: uri }));
      assert.equal(status, 400, uri);
      assert.match(headers.get('content-security-policy'), /form-action 'self'; frame-ancestors 'none'; base-uri 'none'$/);
    }
    const agent = await client(here);
    const { headers, location } = await asked(here, agent, { scope: 'x', state: 'a\r\nset-cookie: x=y' });
    assert.equal(new URL(location).searchParams.get('state'), 'a\r\nset-cookie: x=y');
    assert.deepEqual(headers.getSetCookie(), []);
  });
}

// === Requests ===

async function redirects(here) {
  const { redirect, secure } = here;
  await attacked('redirect tricks: people return only to what is registered', async () => {
    const [agent, signer] = [await client(here), await client(here, 'signer')];
    const port = new URL(redirect).port;
    for (const [by, uri] of [
      ...[
        'https://evil.example/', `${redirect}/`, `${redirect}/../x`, `${redirect}%2f..%2fx`, `${redirect}?x=y`, `${redirect}#x`,
        `${redirect}.evil.example`, redirect.replace('127.0.0.1', '127.0.0.1@evil.example'),
        redirect.replace('127.0.0.1', 'evil.example%2f@127.0.0.1'), redirect.replace('127.0.0.1', '127.0.0.1%40evil.example'),
        redirect.replace('127.0.0.1', '127.0.0.1.evil.example'), redirect.replace('//127.0.0.1', '//127.0.0.1\\@evil.example'),
        redirect.replace('127.0.0.1', 'localhost'), redirect.replace('127.0.0.1', '127.1'), redirect.replace('127.0.0.1', '[::1]'),
        redirect.replace('http:', 'https:'), redirect.replace('http:', 'HTTP:'), redirect.replace('http:', ''), '/callback',
        `http://127.0.0.1:${port}@evil.example/callback`, `${redirect}\r\nlocation: https://evil.example`, ` ${redirect}`, `${redirect}%00`,
        'javascript:alert(1)', 'data:text/html,x', encodeURIComponent(redirect),
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
    const visitor = await client(secure, here.documents.publish('/evil.json', { redirect_uris: [evil] }), { redirect: evil });
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
    const body = new URLSearchParams([...Object.entries(fields(form)), ['t0', 'on'], ['decision', 'refuse'], ['decision', 'allow']]);
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
    for (const uri of [`${genuine.slice(0, -1)}_`, genuine.slice(0, -43), `http://127.0.0.1:${trap.port}/`, `https://127.0.0.1:${trap.port}/`]) {
      const query = new URLSearchParams({ client_id: 'planner', request_uri: uri });
      assert.equal((await get(here, `/authorize?${query}`)).status, 400);
    }
    await assert.rejects(agent.ask({ ...READ, request_uri: genuine }), isError('invalid_request'));
    assert.equal(trap.connections(), 0);
    trap.stop();
  });
  await attacked('a request that the client did not sign is not taken for one that it did (RFC 9101)', async () => {
    await assert.rejects((await client(here)).ask({ ...READ, request: 'eyJhbGciOiJub25lIn0.e30.' }), isError('request_not_supported'));
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
    const headers = async () => (await prover()).proof(`${here.url}/token`);
    for (const [verifier, error] of [[undefined, 'invalid_request'], ['', 'invalid_request'], ['a'.repeat(43), 'invalid_grant']]) {
      const parameters = verifier === undefined ? rest : { ...rest, code_verifier: verifier };
      assert.deepEqual(refusal(await post(here, '/token', parameters, await headers())), [400, error]);
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
      post(here, '/token', { ...parameters, redirect_uri }, await (await prover()).proof(`${here.url}/token`));
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
    await assert.rejects(other.ask({ ...READ, dpop_jkt: own.thumbprint }), isError('invalid_dpop_proof'), 'pushed with another key');
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
    const details = JSON.stringify([{ type: 'attenuating_agent_token', tools: { 'orders.write': {} } }]);
    const next = await agent.refresh(tokens, { authorization_details: details });
    assert.equal(await agent.status(next, `${origin}/orders/1`, 'PUT'), 403);
  });
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
      post(here, '/token', { ...own, client_id }, await (await prover()).proof(`${here.url}/token`));
    assert.deepEqual(refusal(await redeem('other')), [400, 'invalid_grant']);
    assert.equal((await redeem('planner')).status, 200);
  });
  const assertion = async ({ key = keys.signer.privateKey, alg = 'ES256', typ, without, ...changes }) => {
    const claims = { iss: 'signer', sub: 'signer', aud: here.url, jti: crypto.randomUUID(), iat: seconds(), exp: seconds() + 60, ...changes };
    delete claims[without];
    return new SignJWT(claims).setProtectedHeader({ alg, ...(typ && { typ }) }).sign(key);
  };
  const type = 'urn:ietf:params:oauth:client-assertion-type:jwt-bearer';
  const authenticated = async (client_assertion, changes) => refusal(await post(here, '/token', {
    grant_type: 'refresh_token', refresh_token: 'x', client_id: 'signer', client_assertion, client_assertion_type: type, ...changes,
  }));
  // The client is known; its refresh token is not.
  const ACCEPTED = [400, 'invalid_grant'];
  const REFUSED = [401, 'invalid_client'];
  await attacked('client impersonation: an assertion that the client did not make for this issuer, now', async () => {
    const stranger = await generateKeyPair('ES256');
    const unsigned = [{ alg: 'none' }, { iss: 'signer', sub: 'signer', aud: here.url, jti: 'x', exp: seconds() + 60 }]
      .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
    for (const [what, changes] of Object.entries({
      'another key': { key: stranger.privateKey },
      'the key of another client': { key: keys.service.privateKey },
      'the public key as a secret': { key: Buffer.from(JSON.stringify(await exportJWK(keys.signer.publicKey))), alg: 'HS256' },
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
    const { dpop } = await (await prover()).proof(`${here.url}/token`);
    const others = { 'a refresh token': tokens.refresh_token, 'a proof': dpop, 'an ID token': idToken };
    for (const [what, token] of Object.entries({ 'an access token': tokens.access_token, ...others })) {
      assert.deepEqual(await authenticated(token), REFUSED, what);
    }
    const assertions = { 'an assertion': await assertion({}), 'one like a token': await assertion({ ...confused, iss: here.url }) };
    for (const [what, token] of Object.entries({ ...assertions, ...others })) {
      const { status } = await attack.send(`${origin}/bearer`, { authorization: `Bearer ${token}` });
      assert.equal(status, 401, what);
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
    for (const [path, document] of Object.entries({
      '/of-another.json': { client_id: 'https://127.0.0.1/visitor.json', redirect_uris },
      '/known.json': { client_id: 'planner', redirect_uris },
      '/with-secret.json': { client_secret: 'x', redirect_uris },
      '/keys-elsewhere.json': { token_endpoint_auth_method: 'private_key_jwt', jwks_uri: 'https://localhost/keys', redirect_uris },
      '/both.json': { token_endpoint_auth_method: 'private_key_jwt', jwks: { keys: [] }, jwks_uri: `${server.base}/keys`, redirect_uris },
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
        '127.0.0.1', '127.1', '0x7f000001', '2130706433', '0.0.0.0', '[::1]', '[::ffff:127.0.0.1]', '[::ffff:7f00:1]', '[::]', 'localhost',
        'localhost.', '127.0.0.2',
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
    assert.deepEqual(refusal(await post(here, '/token', { ...parameters, req_cnf })), [400, 'invalid_request'], 'without a proof');
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
    assert.deepEqual({ cnf, aud }, { cnf: decodeJwt(tokens.access_token).cnf, aud: origin }, 'a stolen token is not taken for a bearer');
    const [header, , signature] = tokens.access_token.split('.');
    const forged = [header, Buffer.from(JSON.stringify({ ...decodeJwt(tokens.access_token), sub: 'eve' })).toString('base64url'), signature];
    for (const token of [forged.join('.'), tokens.refresh_token, 'x']) {
      assert.deepEqual(await service.introspect(token), { active: false });
    }
  });
  await attacked('enumeration: what is unknown and what belongs to another is answered alike', async () => {
    const { agent, browser, tokens } = await granted(here);
    const foreign = await granted(here, { agent: await client(here, 'other'), person: 'mallory' });
    const same = (found, expected) => assert.deepEqual(
      [found.status, Object.keys(found.body), found.body.error, found.body.error_description],
      [expected.status, Object.keys(expected.body), expected.body.error, expected.body.error_description]);
    const redeem = async (changes) => post(here, '/token', { ...(await code(here)), ...changes }, await (await prover()).proof(`${url}/token`));
    const { code: others } = await code(here, 'other');
    same(await redeem({ code: others }), await redeem({ code: 'x' }));
    const refresh = async (refresh_token) =>
      post(here, '/token', { grant_type: 'refresh_token', client_id: 'planner', refresh_token }, await (await prover()).proof(`${url}/token`));
    same(await refresh(foreign.tokens.refresh_token), await refresh('x'));
    const revoke = (token) => post(here, '/revoke', { client_id: 'planner', token });
    for (const token of [foreign.tokens.refresh_token, foreign.tokens.access_token, tokens.refresh_token]) {
      same(await revoke(token), await revoke('x'));
    }
    await assert.rejects(agent.refresh(tokens), isError('invalid_grant'), 'its own was revoked');
    await foreign.agent.refresh(foreign.tokens);
    const [{ form }, { grant }] = [await listed(here, browser), await listed(here, foreign.browser)];
    const [theirs, none] = [await withdraw(here, browser, { form, grant }), await withdraw(here, browser, { form, grant: crypto.randomUUID() })];
    assert.deepEqual([theirs.status, theirs.page], [400, none.page]);
    await foreign.agent.refresh(foreign.tokens);
    const uri = (request) => new URL(request.page).searchParams.get('request_uri');
    const pages = [uri(await foreign.agent.ask(READ)), 'urn:ietf:params:oauth:request_uri:x', 'x'].map((request_uri) =>
      get(here, `/authorize?${new URLSearchParams({ client_id: 'planner', request_uri })}`));
    assert.equal(new Set((await Promise.all(pages)).map(({ status, page }) => `${status} ${page}`)).size, 1);
  });
  await attacked('no answer with a token, or about one, is kept by a cache', async () => {
    const parameters = await code(here);
    const headers = async (path) => (await prover()).proof(url + path);
    const found = {
      token: await post(here, '/token', parameters, await headers('/token')),
      refused: await post(here, '/token', parameters, await headers('/token')),
      'unknown client': await post(here, '/token', { client_id: 'nobody' }),
      'no form': await post(here, '/token', '', { 'content-type': 'application/json' }),
      par: await post(here, '/par', (await (await client(here)).askInUrl(READ)).parameters, await headers('/par')),
      revoke: await post(here, '/revoke', { client_id: 'planner', token: 'x' }),
      introspect: await post(here, '/introspect', { client_id: 'planner', token: 'x' }),
    };
    assert.deepEqual(Object.values(found).map(({ status }) => status), [200, 400, 401, 400, 201, 200, 400]);
    for (const [what, answer] of Object.entries(found)) {
      assert.equal(answer.headers.get('cache-control'), 'no-store', what);
      assert.equal(answer.headers.get('x-content-type-options'), 'nosniff', what);
      assert.equal(answer.headers.get('access-control-allow-origin'), null, what);
    }
  });
}
