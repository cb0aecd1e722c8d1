// Credence's issuer: people sign in at oidc-provider, consent by a plain form, and take their grants back.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { exportJWK } from 'jose';
import * as oauth from 'oauth4webapi';
import { Browser, fields } from './browser.mjs';
import { fetchWith } from './certificates.mjs';
import { startDocuments } from './documents.mjs';
import { PERSON } from './issuer.mjs';
import { start as startProgram, stop, until } from './processes.mjs';

/** A text that would be a script, if a page took it for markup. */
export const markup = (text) => `"'><script>${text}</script>`;

/** The host name in the certificate of the client `mesh`. */
export const MESH_HOST = 'mesh.test';

/** Where people return to the client `signer`, besides the common place. */
export const SIGNER_REDIRECT = 'https://signer.example/callback';

/**
 * Starts two issuers beside a control plane and an identity provider. The second one has TLS, for clients with
 * certificates and for clients that a document describes.
 */
export async function start({ urls, folder, secret, redirect, authority, ...rest }) {
  const file = (name, text) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const keys = { signer: await keyPair('ES256'), service: await keyPair('ES256') };
  const server = await authority.signed('consent', 'IP:127.0.0.1');
  const documents = await startDocuments(server);
  const common = { ...rest, folder, secret, redirect, authority, keys, documents, fetch: fetchWith(authority) };
  const settings = {
    keys_passphrase_file: file('consent-passphrase', secret),
    control_plane: { url: common.controlPlane, token_file: join(folder, 'operator-token') },
    clients: await clients(redirect, keys),
    ...rules(common),
    limits: { requests_per_second: 1000 },
  };
  const identityProvider = { issuer: common.oidc.issuer, client_secret_file: file('consent-secret', secret) };
  const variants = [
    { client_metadata: { hosts: ['*'] } },
    {
      tls: { certificate: server.cert, key: server.key, client_ca: authority.cert },
      client_metadata: { hosts: ['127.0.0.1'], private_addresses: ['127.0.0.1/32'], ca: authority.cert },
    },
  ];
  const [plain, secure] = await Promise.all(urls.map(async (url, index) => {
    const identity_provider = { ...identityProvider, client_id: url };
    // JSON is valid YAML.
    const config = file(`issuer-${index}.yaml`, JSON.stringify({ url, identity_provider, ...settings, ...variants[index] }));
    return { ...common, url, child: await startIssuer({ ...common, url, config, name: `issuer-${index}` }) };
  }));
  const children = [plain.child, secure.child];
  return { ...plain, secure, stop: async () => (await Promise.all(children.map(stop)), documents.stop()) };
}

export async function startIssuer({ programs, folder, url, config, name, fetch: send }) {
  const options = ['--config', config, '--data', join(folder, `${name}-data`)];
  const made = startProgram(programs.credence, ['issuer', 'keys', 'create', ...options], join(folder, `${name}-keys.log`));
  await once(made, 'exit');
  assert.equal(made.exitCode, 0, made.output());
  const listen = ['--listen', new URL(url).host, '--admin', '127.0.0.1:0'];
  const child = startProgram(programs.credence, ['issuer', 'serve', ...options, ...listen], join(folder, `${name}.log`));
  await until('the issuer', async () => (await send(`${url}/jwks`)).ok, child);
  return child;
}

async function clients(redirect, keys) {
  const jwks = async ({ publicKey }) => ({ keys: [{ ...(await exportJWK(publicKey)), alg: 'ES256', kid: 'one' }] });
  return [
    { id: 'planner', name: 'Planner', redirect_uris: [redirect] },
    { id: 'other', name: markup('client'), redirect_uris: [redirect] },
    { id: 'signer', name: 'Signer', redirect_uris: [redirect, SIGNER_REDIRECT], jwks: await jwks(keys.signer) },
    { id: 'mesh', name: 'Mesh', redirect_uris: [redirect], certificate: MESH_HOST },
    { id: 'bearer', name: 'Bearer', redirect_uris: [redirect] },
    { id: 'service', name: 'Service', jwks: await jwks(keys.service), introspects: true },
  ];
}

function rules({ origin, tlsOrigin }) {
  const rule = { audience: [origin], token_lifetime_s: 300, grant_lifetime_s: 86_400, depth: 1, groups: ['staff'] };
  const ids = { constraint_type: 'one_of', values: ['1', '2'] };
  const any = { constraint_type: 'wildcard' };
  const strange = {
    [markup('any')]: any, [markup('value')]: { constraint_type: 'one_of', values: [markup('one'), markup('two')] },
    range: { constraint_type: 'range', min: 0, max: 9 },
  };
  return {
    scopes: Object.fromEntries(['orders.read', 'orders.write', 'orders.admin'].map((name) => [name, { [name]: {} }])),
    policy: [
      { ...rule, name: 'read', tools: { 'orders.read': { id: any } } },
      { ...rule, name: 'write', tools: { 'orders.write': { id: ids } } },
      // Their paths have no id.
      { ...rule, name: 'mesh', clients: ['mesh'], audience: [tlsOrigin], tools: { 'orders.read': {} } },
      { ...rule, name: 'bearer', clients: ['bearer'], tools: { 'orders.read': {} }, bearer: true },
      { ...rule, name: 'strange', clients: ['other'], tools: { [markup('tool')]: strange } },
    ],
  };
}

const keyPair = (algorithm) => oauth.generateKeyPair(algorithm, { extractable: true });

/** How each client authenticates. */
export const authentications = {
  signer: ({ keys }) => oauth.PrivateKeyJwt({ key: keys.signer.privateKey, kid: 'one' }),
  service: ({ keys }) => oauth.PrivateKeyJwt({ key: keys.service.privateKey, kid: 'one' }),
  mesh: () => oauth.TlsClientAuth(),
};

/**
 * A client of the issuer, as oauth4webapi's examples have it. It has a DPoP key of its own, unless it gets another one;
 * without one (`null`), its tokens are bearers, or bound to the certificate that `send` presents.
 */
export async function client(here, id = 'planner', { key, send = here.fetch, redirect = here.redirect } = {}) {
  const issuer = new URL(here.url);
  const metadata = { client_id: id };
  const options = { [oauth.allowInsecureRequests]: true, [oauth.customFetch]: send };
  const discovered = await oauth.discoveryRequest(issuer, { ...options, algorithm: 'oauth2' });
  const server = await oauth.processDiscoveryResponse(issuer, discovered);
  const authentication = authentications[id]?.(here) ?? oauth.None();
  if (key !== null) options.DPoP = oauth.DPoP(metadata, key ?? (await keyPair('Ed25519')));
  const recognizedTokenTypes = { aat: () => {} };
  const asked = async (changes) => {
    const [verifier, state] = [oauth.generateRandomCodeVerifier(), oauth.generateRandomState()];
    const parameters = new URLSearchParams({
      response_type: 'code', client_id: id, redirect_uri: redirect, state,
      code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256', ...changes,
    });
    return { verifier, state, parameters };
  };
  const at = (parameters) => `${server.authorization_endpoint}?${new URLSearchParams(parameters)}`;
  return {
    id,
    /** A request, pushed (RFC 9126), and what redeems its code. */
    async ask(changes) {
      const request = await asked(changes);
      const { parameters } = request;
      const response = await oauth.pushedAuthorizationRequest(server, metadata, authentication, parameters, options);
      const { request_uri } = await oauth.processPushedAuthorizationResponse(server, metadata, response);
      return { ...request, page: at({ client_id: id, request_uri }) };
    },
    /** The same in the URL itself. */
    async askInUrl(changes) {
      const request = await asked(changes);
      return { ...request, page: at(request.parameters) };
    },
    async redeem(url, { verifier, state }, additionalParameters) {
      const answer = oauth.validateAuthResponse(server, metadata, url, state);
      const response = await oauth.authorizationCodeGrantRequest(
        server, metadata, authentication, answer, redirect, verifier, { ...options, additionalParameters });
      return oauth.processAuthorizationCodeResponse(server, metadata, response, { recognizedTokenTypes });
    },
    async refresh({ refresh_token: token }, additionalParameters) {
      const response = await oauth.refreshTokenGrantRequest(
        server, metadata, authentication, token, { ...options, additionalParameters });
      return oauth.processRefreshTokenResponse(server, metadata, response, { recognizedTokenTypes });
    },
    async revoke(token) {
      await oauth.processRevocationResponse(await oauth.revocationRequest(server, metadata, authentication, token, options));
    },
    async introspect(token) {
      const response = await oauth.introspectionRequest(server, metadata, authentication, token, options);
      return oauth.processIntrospectionResponse(server, metadata, response);
    },
    /** The status of a request to the service. */
    async status({ access_token: token }, service, method = 'GET') {
      try {
        return (await oauth.protectedResourceRequest(token, method, new URL(service), undefined, undefined, options)).status;
      } catch (error) {
        if (!(error instanceof oauth.WWWAuthenticateChallengeError)) throw error;
        return error.status;
      }
    },
  };
}

/** Tools as a client asks for them (RFC 9396; draft section 6.1). */
export const details = (tools, more) => JSON.stringify([{ type: 'attenuating_agent_token', tools, ...more }]);

/** The browser of a person. */
export function browserOf({ oidc, fetch: send }, person = 'ada') {
  const browser = new Browser(send);
  browser.set(oidc.issuer, PERSON, encodeURIComponent(person));
  return browser;
}

/** Presses the button of a consent page, with these fields, and returns to the client. */
export function consent(browser, { url }, page, ticked, { decision = 'allow', redirect } = {}) {
  const form = new URLSearchParams({ ...fields(page), ...ticked, decision });
  return browser.go(`${url}/consent`, { form, until: redirect });
}

/** Signs in, and allows what is ticked. Returns where the browser then is. */
export async function allow(here, browser, request, ticked = { t0: 'on' }, redirect = here.redirect) {
  const { page } = await browser.go(request.page);
  return (await consent(browser, here, page, ticked, { redirect })).url;
}

/** A grant, and its first token. By default, the client `planner` may read all orders. */
export async function granted(here, { asked = { scope: 'orders.read' }, ticked, agent, browser, person, more } = {}) {
  agent ??= await client(here);
  browser ??= browserOf(here, person);
  const request = await agent.ask(asked);
  const at = await allow(here, browser, request, ticked);
  return { agent, browser, request, at, tokens: await agent.redeem(at, request, more) };
}

/** What the page "What you have delegated" has in its forms. The newest grant comes first. */
export async function listed({ url }, browser) {
  const { page } = await browser.go(`${url}/`);
  const [form, grant] = ['form', 'grant'].map((name) => page.match(new RegExp(`name="${name}" value="([^"]+)"`))?.[1]);
  return { page, form, grant };
}

/** The person takes a grant back. */
export async function withdraw({ url }, browser, { form, grant }) {
  return browser.go(`${url}/withdraw`, { form: new URLSearchParams({ form, grant }) });
}

/** The credence program's output. */
export async function credence({ programs }, ...options) {
  return (await promisify(execFile)(programs.credence, options)).stdout.trim();
}

/** An operator revokes a principal, or a token. */
export async function revoke({ controlPlane, folder }, revoked) {
  const authorization = `Bearer ${readFileSync(join(folder, 'operator-token'), 'utf8').trim()}`;
  const headers = { authorization, 'content-type': 'application/json' };
  const body = JSON.stringify(revoked);
  const response = await fetch(`${controlPlane}/v1/revocations`, { method: 'POST', headers, body });
  assert.equal(response.status, 200, await response.text());
}

/** Whether oauth4webapi read this error in an answer. */
export const isError = (...codes) => (error) => codes.includes(error.error ?? error.cause?.error);
