// Attacks on what a person's browser meets: sign-in, forms, and pages.

import assert from 'node:assert/strict';
import { escaped, fields } from './browser.mjs';
import { allow, browserOf, client, consent, details, granted, listed, markup, withdraw } from './consent.mjs';
import { READ, asked, get } from './raw.mjs';
import { attacked } from './report.mjs';

export async function pageAttacks(here) {
  await signIns(here);
  await forms(here);
  await pages(here);
  await markups(here);
}

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
    const { agent, browser, at, request } = await granted(here);
    const { url: refused } = await browser.go((await agent.ask({ scope: 'orders.admin' })).page, { until: here.redirect });
    for (const answer of [at, refused]) assert.equal(answer.searchParams.get('iss'), url);
    at.searchParams.set('iss', 'https://evil.example');
    await assert.rejects(agent.redeem(at, request), /"iss"/);
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
    browser.set(url, 'credence-session', 'ended');
    const again = await (await client(here)).ask(READ);
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
      // One for each sign-in, named by its state, and removed afterwards.
      const found = set.map((cookie) => cookie.replace(/(sign-in-)\w+=/, '$1STATE=').replace(/=[^;]*/, '').split('; '));
      const [signIn, session] = ['sign-in-STATE', 'session'].map((name) => `${prefix}credence-${name}`);
      assert.deepEqual(found, [
        [signIn, ...attributes, 'Max-Age=600'], [session, ...attributes, 'Max-Age=3600'], [signIn, ...attributes, 'Max-Age=0'],
      ]);
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

const POLICY = new RegExp("^default-src 'none'; style-src 'self'; form-action 'self'( http://127.0.0.1:[0-9]+)?; " +
  "frame-ancestors 'none'; base-uri 'none'$");

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
    const { form } = await listed(here, browser);
    shown['grant that is none'] = await withdraw(here, browser, { form, grant: crypto.randomUUID() });
    shown['signed out'] = await browser.go(`${url}/sign-out`, { form: new URLSearchParams({ form }) });
    for (const [what, { headers, status }] of Object.entries(shown)) {
      assert.match(headers.get('content-security-policy') ?? '', POLICY, `${what} (${status})`);
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
  const strange = {
    [markup('tool')]: {
      [markup('any')]: { constraint_type: 'exact', value: markup('exact') },
      [markup('value')]: { constraint_type: 'one_of', values: [markup('one'), markup('two')] },
      range: { constraint_type: 'range', min: 1, max: 8 },
    },
  };
  const asks = (tools) => ({ scope: '', authorization_details: details(tools), state: markup('state') });
  await attacked('XSS by a client: its name, tools, arguments, values and state', async () => {
    const [agent, browser] = [await client(here, 'other'), browserOf(here)];
    const { page } = await browser.go((await agent.ask(asks(strange))).page);
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
    const { page } = await browser.go((await agent.ask(asks({ ...strange, 'orders.read': {} }))).page);
    const typed = Object.fromEntries([0, 1, 2].flatMap((tool) => [0, 1, 2].flatMap((argument) =>
      ['min', 'max', 'only'].map((part) => [`t${tool}a${argument}${part}`, markup(part)]))));
    const ticked = Object.fromEntries(['t0', 't1', 't0a0v0', 't0a1v0', 't0a2v0'].map((name) => [name, 'on']));
    const again = await consent(browser, here, page, { ...typed, ...ticked });
    assertEscaped(again.page, ['min', 'max', 'only'].map(markup));
    const other = await client(here);
    const request = await other.ask(READ);
    await allow(here, browser, request, { t0: 'on', t0a0only: markup('only') });
    assertEscaped((await listed(here, browser)).page, [markup('only')]);
  });
  await attacked('XSS by errors: parameters that a page has to name', async () => {
    const visitor = await client(secure, here.documents.publish('/errors.json', { redirect_uris: [redirect] }));
    const browser = browserOf(secure);
    // Errors for developers have no quotation marks.
    const named = (text) => markup(text).replace('"', '');
    for (const [changes, texts] of [
      [{ scope: markup('scope') }, []],
      [{ resource: `https://a.example/${markup('resource')}` }, [named('resource')]],
      [asks({ [markup('tool')]: {} }), [named('tool')]],
      [{ scope: '', authorization_details: details({}, { [markup('member')]: 1 }) }, [named('member')]],
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
    const twice = new URLSearchParams([1, 2].map((value) => [markup('twice'), value]));
    const { page } = await get(here, `/authorize?${query}&${twice}`);
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
