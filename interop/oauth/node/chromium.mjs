// People in a real browser, Debian's Chromium without a window, and pages that they come to.

import { once } from 'node:events';
import { createServer } from 'node:http';
import { chromium } from 'playwright-core';

/** Starts it. As root it has no sandbox: there, Chromium refuses to use one. */
export const launch = () =>
  chromium.launch({ executablePath: process.env.CREDENCE_CHROMIUM, chromiumSandbox: process.getuid() !== 0 });

/** A person with a browser profile of their own. Scripts are off unless the options say otherwise. */
export async function person(user, { browser, url: issuer, secret: password }, options = {}) {
  const context = await browser.newContext({ javaScriptEnabled: false, ...options });
  return new Person(await context.newPage(), { user, issuer, password });
}

class Person {
  /** What Chromium complained of, such as violations of a content security policy. */
  complaints = [];

  constructor(page, own) {
    Object.assign(this, { page, ...own });
    page.on('console', (message) => this.complaints.push(message.text()));
  }

  /** Opens a page of the issuer, and signs in at the identity provider if that asks. */
  async open(url) {
    await this.page.goto(String(url));
    const password = this.page.getByLabel('Password');
    if (!(await password.count())) return;
    await this.page.getByLabel('User name').fill(this.user);
    await password.fill(this.password);
    await this.press('Sign in');
  }

  /** The list of what the person has granted. */
  openGrants() {
    return this.open(`${this.issuer}/`);
  }

  /** The part of the consent page about a tool. */
  tool(title) {
    return this.page.getByRole('group', { name: title });
  }

  async tick(title) {
    await this.tool(title).getByLabel(title).check();
  }

  /** Presses a button, and waits for the page that it leads to. */
  async press(name) {
    const button = this.page.getByRole('button', { name }).first();
    await Promise.all([this.page.waitForEvent('load'), button.click()]);
  }

  /** Takes back all that is listed. Returns what the page says then. */
  async takeAllBack() {
    await this.openGrants();
    while (await this.page.getByRole('button', { name: TAKE_BACK }).count()) await this.press(TAKE_BACK);
    return this.page.getByRole('status').innerText();
  }

  close() {
    return this.page.context().close();
  }
}

/** What a client with this name asks a person for, who then returns to this URL. */
export function requestUrl({ url, documents }, name, returnTo) {
  const id = documents.publish(`/${encodeURIComponent(name)}.json`, { client_name: name, redirect_uris: [returnTo] });
  return `${url}/authorize?${new URLSearchParams({
    response_type: 'code', client_id: id, scope: 'shop.read shop.charge', state: 'x',
    code_challenge: 'E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM', code_challenge_method: 'S256',
  })}`;
}

/** A server of pages that are not the issuer's. */
export async function startPages() {
  const pages = [];
  const server = createServer((request, response) =>
    response.setHeader('content-type', 'text/html').end(HEAD + (pages[request.url.slice(1)] ?? '')));
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address();
  return {
    /** The URL of a new page at this host. The issuer's is of the same site. */
    serve: (html, host = '127.0.0.1') => `http://${host}:${port}/${pages.push(html) - 1}`,
    stop: () => new Promise((done) => server.close(done).closeAllConnections()),
  };
}

const TAKE_BACK = 'Take it back';
// Without an icon of its own, a browser asks for one.
export const HEAD = '<!doctype html><html lang="en"><title>page</title><link rel="icon" href="data:,">';
