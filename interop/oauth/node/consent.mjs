// Credence's issuer: a person signs in at oidc-provider, consents by a plain form, and takes the grant back.

import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as oauth from 'oauth4webapi';
import { start, until } from './processes.mjs';

const LOCAL = { [oauth.allowInsecureRequests]: true };

/** The tools of the scopes, and the policy of everyone here. */
const SCOPES = {
  'orders.read': { 'orders.read': {} },
  'orders.write': { 'orders.write': { id: { constraint_type: 'wildcard' } } },
};

/** The issuer's configuration. */
export function configuration({ url, provider, secretFile, controlPlane, tokenFile, passphraseFile, audience, redirect }) {
  const rule = { audience, token_lifetime_s: 300, grant_lifetime_s: 86_400, depth: 1 };
  return {
    url,
    identity_provider: { issuer: provider, client_id: 'credence', client_secret_file: secretFile },
    control_plane: { url: controlPlane, token_file: tokenFile },
    keys_passphrase_file: passphraseFile,
    clients: [{ id: 'planner', name: 'Planner', redirect_uris: [redirect] }],
    scopes: SCOPES,
    tools: { 'orders.read': { title: 'read your orders' } },
    policy: [
      { ...rule, name: 'read', tools: { 'orders.read': { id: { constraint_type: 'wildcard' } } } },
      { ...rule, name: 'write', tools: { 'orders.write': { id: { constraint_type: 'one_of', values: ['1', '2'] } } } },
    ],
  };
}

/** Starts the issuer at this port. */
export async function startConsentIssuer({ credence, folder, port, settings }) {
  const config = join(folder, 'issuer.yaml');
  writeFileSync(config, JSON.stringify(settings));
  const data = join(folder, 'issuer-data');
  const files = ['--config', config, '--data', data];
  const made = start(credence, ['issuer', 'keys', 'create', ...files], join(folder, 'issuer-keys.log'));
  await once(made, 'exit');
  if (made.exitCode !== 0) throw new Error(made.output());
  const child = start(credence, ['issuer', 'serve', ...files, '--listen', `127.0.0.1:${port}`], join(folder, 'issuer.log'));
  await until('the issuer', async () => (await fetch(`${settings.url}/healthz`)).ok, child);
  return child;
}

/** A browser with cookies, which follows redirects until a client's redirect URI or a page. */
export class Browser {
  #cookies = new Map();

  async go(url, { form, until: end } = {}) {
    let next = { url: new URL(url), form };
    for (let step = 0; step < 20; step += 1) {
      if (end && next.url.href.startsWith(end)) return { url: next.url };
      const response = await this.#request(next);
      const location = response.headers.get('location');
      if (!location) return { url: next.url, status: response.status, page: await response.text(), headers: response.headers };
      next = { url: new URL(location, next.url) };
    }
    throw new Error(`too many redirects from ${url}`);
  }

  async #request({ url, form }) {
    const jar = this.#of(url);
    const headers = { accept: 'text/html', cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') };
    const response = await fetch(url, { method: form ? 'POST' : 'GET', body: form, redirect: 'manual', headers });
    for (const header of response.headers.getSetCookie()) {
      const [, name, value] = header.match(/^([^=]+)=([^;]*)/);
      if (value) jar.set(name, value);
      else jar.delete(name);
    }
    return response;
  }

  /** Cookies of an origin: ports tell the servers of this test apart. */
  #of({ origin }) {
    if (!this.#cookies.has(origin)) this.#cookies.set(origin, new Map());
    return this.#cookies.get(origin);
  }
}

/** The fields that a page's form has, without the boxes. */
export function fields(page) {
  const hidden = [...page.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)];
  const lists = [...page.matchAll(/<select name="([^"]+)"><option value="([^"]+)"/g)];
  return Object.fromEntries([...hidden, ...lists].map(([, name, value]) => [name, value]));
}

/** A client that asks by PAR, with DPoP. */
export async function askingClient({ issuer, id, redirect, push = true }) {
  const url = new URL(issuer);
  const discovered = await oauth.discoveryRequest(url, { ...LOCAL, algorithm: 'oauth2' });
  const server = await oauth.processDiscoveryResponse(url, discovered);
  const client = { client_id: id };
  const keys = await oauth.generateKeyPair('Ed25519');
  const options = { ...LOCAL, DPoP: oauth.DPoP(client, keys) };
  const none = oauth.None();
  return {
    server,
    async ask({ scope, resource, more = {} }) {
      const verifier = oauth.generateRandomCodeVerifier();
      const state = oauth.generateRandomState();
      const parameters = new URLSearchParams({
        response_type: 'code', client_id: id, redirect_uri: redirect, state, ...(scope && { scope }), ...(resource && { resource }),
        code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256', ...more,
      });
      if (!push) return { url: `${server.authorization_endpoint}?${parameters}`, verifier, state };
      const response = await oauth.pushedAuthorizationRequest(server, client, none, parameters, options);
      const { request_uri } = await oauth.processPushedAuthorizationResponse(server, client, response);
      const query = new URLSearchParams({ client_id: id, request_uri });
      return { url: `${server.authorization_endpoint}?${query}`, verifier, state };
    },
    async redeem(at, { verifier, state }) {
      const answer = oauth.validateAuthResponse(server, client, at, state);
      const response = await oauth.authorizationCodeGrantRequest(server, client, none, answer, redirect, verifier, options);
      return oauth.processAuthorizationCodeResponse(server, client, response);
    },
    async refresh(token) {
      const response = await oauth.refreshTokenGrantRequest(server, client, none, token, options);
      return oauth.processRefreshTokenResponse(server, client, response);
    },
    async revoke(token) {
      const response = await oauth.revocationRequest(server, client, none, token, options);
      return oauth.processRevocationResponse(response);
    },
    request(token, url) {
      return oauth.protectedResourceRequest(token, 'GET', new URL(url), undefined, undefined, options);
    },
  };
}
