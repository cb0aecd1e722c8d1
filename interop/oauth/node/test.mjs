// Real issuers and clients, unmodified, at the real filter. The last line of output is a JSON object of counts.
//
// Environment: CREDENCE_BIN, CREDENCE_WASM, CREDENCE_ENVOY; CREDENCE_ROOT, the repository; CREDENCE_OAUTH_PYTHON, an
// environment with Authlib; CREDENCE_CHROMIUM, the browser; CREDENCE_OAUTH_SPRING, the folder of Spring Authorization
// Server, if it is there.

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as accessibility from './accessibility.mjs';
import * as attack from './attack.mjs';
import { clientAttacks } from './attacks-clients.mjs';
import { pageAttacks } from './attacks-pages.mjs';
import { requestAttacks } from './attacks-requests.mjs';
import { authority, selfSigned } from './certificates.mjs';
import { launch } from './chromium.mjs';
import * as chromiumAttacks from './chromium-attacks.mjs';
import * as consent from './consent.mjs';
import { grants } from './consent-grants.mjs';
import { ALGORITHMS, signingKeys, startIssuer } from './issuer.mjs';
import { SDK_1, SDK_2, callAsService, callAsUser, refusedTool } from './mcp.mjs';
import * as mcpConsent from './mcp-consent.mjs';
import { authlibClient, startAuthlib, startSpring } from './peers.mjs';
import { freePorts, stop, until } from './processes.mjs';
import { ATTACKER, allowed, answer, denied, failed, hasFailed, printCounts } from './report.mjs';
import { startService } from './service.mjs';
import { startShopIssuer } from './shop-issuer.mjs';
import * as shop from './shop.mjs';
import { startStack } from './stack.mjs';
import * as web from './web.mjs';

const secret = randomBytes(24).toString('hex');
const folder = mkdtempSync(join(tmpdir(), 'credence-oauth-'));

const OIDC = 'oidc-provider';
const SPRING = 'Spring Authorization Server';
const WEB = 'oauth4webapi';
const AUTHLIB = 'Authlib';
const MCP = '@modelcontextprotocol/client';
const OLD_MCP = '@modelcontextprotocol/sdk';

const bearer = (token) => ({ authorization: `Bearer ${token}` });
const INVALID_TOKEN = { status: 401, error: 'invalid_token' };
const NO_SCOPE = { status: 403, error: 'insufficient_scope' };

async function main() {
  const [port, tlsPort, http, grpc, callbackPort, shopPort, ...issuerPorts] = await freePorts(11);
  // The metadata of a resource lists its issuers in the order of their names. The MCP SDK takes the first one.
  const [oidcPort, springPort, authlibPort, consentPort, secureConsentPort] = issuerPorts.sort();
  const consentUrls = [`http://127.0.0.1:${consentPort}`, `https://127.0.0.1:${secureConsentPort}`];
  const shopUrl = `http://127.0.0.1:${shopPort}`;
  const redirect = `http://127.0.0.1:${callbackPort}/callback`;
  const origin = `http://127.0.0.1:${port}`;
  const oldKeys = await signingKeys('old');
  const names = ['server', 'agent', 'other'];
  const [certificate, agent, other] = await Promise.all(names.map((name) => selfSigned(folder, name)));
  const ca = await authority(folder, 'authority');
  const options = { secret, redirect, certificate, consentUrls: [...consentUrls, shopUrl] };
  const oidc = await startIssuer({ port: oidcPort, keys: oldKeys, ...options });
  const unknown = await startIssuer({ port: 0, keys: await signingKeys('other'), ...options });
  const at = { redirect, resource: origin, secret, folder };
  const spring = startSpring({ port: springPort, ...at });
  const authlibIssuer = startAuthlib({ port: authlibPort, ...at });
  const service = await startService();
  const trusted = [
    { issuer: oidc.issuer, algorithms: ALGORITHMS },
    { issuer: authlibIssuer.issuer, algorithms: ['ES256'] },
    ...consentUrls.map((issuer) => ({ issuer, algorithms: ['Ed25519'], samePrincipalsAs: oidc.issuer, ca: ca.cert })),
    shop.trusted(shopUrl, oidc.issuer),
  ];
  // It writes no media type into the header of its access tokens.
  if (spring) trusted.push({ issuer: spring.issuer, algorithms: ['RS256'], accessTokens: { typ: 'JWT' } });
  const programs = {
    root: process.env.CREDENCE_ROOT,
    credence: process.env.CREDENCE_BIN,
    wasm: process.env.CREDENCE_WASM,
    envoy: process.env.CREDENCE_ENVOY,
  };
  const ports = { port, tlsPort, http, grpc };
  const stack = await startStack({ programs, folder, issuers: trusted, servicePort: service.port, ports, certificate });
  const controlPlane = `http://127.0.0.1:${http}`;
  const shopIssuer = await startShopIssuer({
    programs, folder, secret, url: shopUrl, origin, controlPlane, oidc, authority: ca,
  });
  if (spring) await spring.ready();
  await authlibIssuer.ready();
  const here = { origin, redirect, oidc, unknown, spring, authlibIssuer };
  await keysArrive(here);
  await proofsCount(here);

  await tokensAndProofs(here);
  await metadata(here);
  if (spring) await springTokens(here);
  await authlib(here);
  await certificates(here, `https://127.0.0.1:${tlsPort}`, { certificate, agent, other });
  await mcp(here);
  await stolen(here);
  await wrongTokens(here);
  const consents = await consent.start({
    ...here, programs, folder, secret, certificate, authority: ca, urls: consentUrls, tlsOrigin: `https://127.0.0.1:${tlsPort}`,
    controlPlane,
  });
  await grants(consents);
  await pageAttacks(consents);
  await requestAttacks(consents);
  await clientAttacks(consents);
  await inChromium(shopIssuer);
  await rotation(here, oldKeys, options);

  await Promise.all([consents.stop(), shopIssuer.stop()]);
  const children = [stack.envoy, stack.controlPlane, authlibIssuer.child, spring?.child];
  await Promise.all(children.filter(Boolean).map(stop));
  await Promise.all([here.oidc.stop(), unknown.stop(), service.stop()]);
}

/** The people of the shop have a real browser. */
async function inChromium(issuer) {
  const here = { ...issuer, browser: await launch() };
  await mcpConsent.grants(here);
  await accessibility.grants(here);
  await chromiumAttacks.attacks(here);
  await here.browser.close();
}

const service = ({ oidc }, alg, dpop) => web.client({ issuer: oidc.issuer, id: `service-${alg}`, secret, dpop });
const user = (issuer, id, dpop) => web.client({ issuer, id, secret, dpop });

/** Waits until every worker of Envoy has the keys of every issuer. */
async function keysArrive({ origin, oidc, spring, authlibIssuer }) {
  const each = [[oidc, 'service-ES256'], [spring, 'agent'], [authlibIssuer, 'service', 'oauth2']];
  for (const [at, id, metadata] of each.filter(([at]) => at)) {
    const client = await web.client({ issuer: at.issuer, id, secret, metadata });
    const { access_token: token } = await client.clientCredentials('orders.read', origin);
    await attack.everywhere(`${origin}/bearer`, bearer(token), ({ status }) => status === 200);
  }
}

/** After its start, the filter refuses proofs for as long as earlier ones could be replayed (`pop_clock_skew`). */
async function proofsCount(here) {
  await until('proofs to count', async () => {
    // A new client each time: one that had an answer has a nonce, with which proofs count at once.
    const client = await service(here, 'ES256', 'ES256');
    const { access_token: token } = await client.clientCredentials('orders.read', here.origin);
    const found = await answer(() => client.request(token, `${here.origin}/orders/1`));
    return found.status === 200;
  });
}

async function tokensAndProofs(here) {
  const { origin, oidc, redirect } = here;
  const order = `${origin}/orders/7`;
  for (const [alg, dpop] of [['RS256', 'ES256'], ['ES256', 'ES256'], ['EdDSA', 'ES256'], ['ES256', 'Ed25519']]) {
    await allowed(WEB, OIDC, `client credentials, token ${alg}, DPoP ${dpop}`, async () => {
      const client = await service(here, alg, dpop);
      const token = await client.clientCredentials('orders.read', origin);
      const found = await answer(() => client.request(token.access_token, order));
      const { authorization, dpop: proof, ...identity } = found.body;
      if (authorization || proof) throw new Error('the service received the token or the proof');
      if (identity['x-delegation-subject'] !== `service-${alg}`) throw new Error(JSON.stringify(identity));
      return found;
    });
  }
  await allowed(WEB, OIDC, 'code flow, DPoP', async () => {
    const client = await user(oidc.issuer, 'web', 'ES256');
    const token = await client.code('openid orders.read', origin, redirect);
    const found = await answer(() => client.request(token.access_token, order));
    if (found.body['x-delegation-subject'] !== 'ada') throw new Error(JSON.stringify(found));
    return found;
  });
  const nonced = await service(here, 'ES256', 'ES256');
  const token = await nonced.clientCredentials('orders.read', origin);
  const once = () => nonced.request(token.access_token, `${origin}/once`);
  let isNonceError = false;
  await denied(WEB, OIDC, 'no nonce', { status: 401, error: 'use_dpop_nonce' }, () => answer(async () => {
    try {
      return await once();
    } catch (error) {
      isNonceError = web.isNonceError(error);
      throw error;
    }
  }));
  await allowed(WEB, OIDC, 'the same again, with the nonce that it was given', () => {
    if (!isNonceError) throw new Error('oauth4webapi does not see that a nonce is needed');
    return answer(once);
  });
  await allowed(WEB, OIDC, 'bearer', async () => {
    const client = await service(here, 'RS256');
    const token = await client.clientCredentials('orders.read', origin);
    return answer(() => client.request(token.access_token, `${origin}/bearer`));
  });
  await denied(WEB, OIDC, 'a scope is missing', { ...NO_SCOPE, scope: 'orders.write' },
    () => answer(() => nonced.request(token.access_token, order, { method: 'PUT' })));
  await allowed(WEB, OIDC, 'the scope that the challenge named', async () => {
    const larger = await nonced.clientCredentials('orders.read orders.write', origin);
    return answer(() => nonced.request(larger.access_token, order, { method: 'PUT' }));
  });
}

async function metadata({ origin, oidc }) {
  for (const resource of [origin, `${origin}/mcp`]) {
    await allowed(WEB, OIDC, `metadata of ${resource.replace(origin, 'the origin ')}`, async () => {
      const found = await web.resourceMetadata(resource);
      if (!found.authorization_servers.includes(oidc.issuer)) throw new Error(JSON.stringify(found));
      return { status: 200 };
    });
  }
  const expected = { status: 401, resource_metadata: `${origin}/.well-known/oauth-protected-resource` };
  await denied(ATTACKER, OIDC, 'no token', expected, () => attack.send(`${origin}/orders/7`));
}

async function springTokens({ origin, spring, redirect }) {
  const order = `${origin}/orders/7`;
  await allowed(WEB, SPRING, 'client credentials, token RS256, DPoP ES256', async () => {
    const client = await user(spring.issuer, 'agent', 'ES256');
    const token = await client.clientCredentials('orders.read', origin);
    return answer(() => client.request(token.access_token, order));
  });
  await allowed(WEB, SPRING, 'bearer', async () => {
    const client = await user(spring.issuer, 'agent');
    const token = await client.clientCredentials('orders.read', origin);
    return answer(() => client.request(token.access_token, `${origin}/bearer`));
  });
  const client = await user(spring.issuer, 'agent', 'ES256');
  const token = await client.code('openid orders.read', origin, redirect);
  await allowed(WEB, SPRING, 'code flow, DPoP', () => answer(() => client.request(token.access_token, order)));
  for (const other of ['id_token', 'refresh_token']) {
    await denied(ATTACKER, SPRING, `${other} as a bearer`, INVALID_TOKEN,
      () => attack.send(`${origin}/bearer`, bearer(token[other])));
  }
  await denied(WEB, SPRING, 'a scope is missing', { ...NO_SCOPE, scope: 'orders.write' },
    () => answer(() => client.request(token.access_token, order, { method: 'PUT' })));
}

async function authlib({ origin, oidc, spring, authlibIssuer }) {
  const settings = { issuer: authlibIssuer.issuer, id: 'service', secret, metadata: 'oauth2' };
  const client = await web.client(settings);
  const { access_token: token } = await client.clientCredentials('orders.read', origin);
  await allowed(WEB, AUTHLIB, 'client credentials, token ES256, bearer', () =>
    answer(() => client.request(token, `${origin}/bearer`)));
  await denied(WEB, AUTHLIB, 'a bearer, where DPoP is required', INVALID_TOKEN, () =>
    answer(() => client.request(token, `${origin}/orders/7`)));
  const scopeless = await client.clientCredentials('orders.write', origin);
  await denied(WEB, AUTHLIB, 'a scope is missing', { ...NO_SCOPE, scope: 'orders.read' }, () =>
    answer(() => client.request(scopeless.access_token, `${origin}/bearer`)));
  const cases = [
    [OIDC, oidc, 'service-ES256', 'ES256', '/orders/7'],
    [OIDC, oidc, 'service-RS256', 'EdDSA', '/orders/7'],
    [OIDC, oidc, 'service-EdDSA', 'ES256', '/once'],
    [OIDC, oidc, 'service-EdDSA', undefined, '/bearer'],
    [SPRING, spring, 'agent', 'ES256', '/orders/7'],
    [SPRING, spring, 'agent', undefined, '/bearer'],
  ];
  for (const [issuer, at, id, dpop, path] of cases.filter(([, at]) => at)) {
    const task = { issuer: at.issuer, id, secret, dpop, scope: 'orders.read', resource: origin, url: origin + path };
    const proof = dpop ? `DPoP ${dpop}` : 'bearer';
    await allowed(AUTHLIB, issuer, `client credentials, ${proof}, ${path}`, () => authlibClient(task));
  }
}

async function certificates({ origin, oidc }, tlsOrigin, { certificate, agent, other }) {
  const url = `${tlsOrigin}/mtls`;
  let token;
  await allowed(AUTHLIB, OIDC, 'client credentials, bound to a client certificate', async () => {
    const tls = { cert: [agent.cert, agent.key], ca: certificate.cert };
    const client = { issuer: oidc.issuer, id: 'service-mtls', secret };
    const found = await authlibClient({ ...client, scope: 'orders.read', resource: tlsOrigin, url, ...tls });
    token = found.token;
    return found;
  });
  const headers = bearer(token);
  for (const [what, presented, reason] of [
    ['the certificate of a thief', other, 'certificate_mismatch'],
    ['no certificate', undefined, 'certificate_missing'],
  ]) {
    const expected = { ...INVALID_TOKEN, reason };
    await denied(ATTACKER, OIDC, `a stolen token bound to a certificate, with ${what}`, expected, () =>
      attack.send(url, headers, 'GET', presented));
  }
}

async function mcp({ origin, oidc, redirect }) {
  const url = `${origin}/mcp`;
  const steppedUp = (found, answers) => {
    const isLarger = found.scopes.map((scope) => scope.split(' ').includes('mcp.tools'));
    if (String(isLarger) !== String([false, true])) throw new Error(`the scopes are ${JSON.stringify(found.scopes)}`);
    for (const answer of answers) {
      if (!found.answers.includes(answer)) throw new Error(`no ${answer} in ${found.answers}`);
    }
    return { status: 200, subject: found.caller.subject };
  };
  for (const alg of ['ES256', 'EdDSA']) {
    await allowed(MCP, OIDC, `a service calls a tool, DPoP ${alg}: discovery, nonce, step-up`, async () => {
      const found = await callAsService({ url, issuer: oidc.issuer, secret, id: `service-${alg}`, alg });
      return steppedUp(found, ['401 use_dpop_nonce', '403 insufficient_scope']);
    });
  }
  await denied(MCP, OIDC, 'a tool without its scope', { status: 403, scope: 'mcp.tools' }, () =>
    refusedTool({ url, issuer: oidc.issuer, secret, id: 'service-ES256', alg: 'ES256' }));
  for (const [client, sdk, at, steps] of [
    [MCP, SDK_2, url, ['401 use_dpop_nonce', '403 insufficient_scope']],
    [OLD_MCP, SDK_1, `${origin}/bearer/mcp`, ['403 insufficient_scope']],
  ]) {
    await allowed(client, OIDC, `a user calls a tool: discovery, code flow, ${steps.join(', ')}`, async () => {
      const found = steppedUp(await callAsUser(sdk, { url: at, redirect, secret }), steps);
      if (found.subject !== 'ada') throw new Error(JSON.stringify(found));
      return found;
    });
  }
}

async function stolen(here) {
  const { origin } = here;
  const order = `${origin}/orders/7`;
  const client = await service(here, 'ES256', 'ES256');
  const { access_token: token } = await client.clientCredentials('orders.read orders.write', origin);
  let headers;
  const send = (url, init) => (headers = init.headers) && fetch(url, init);
  await allowed(WEB, OIDC, 'the request that is then stolen', () =>
    answer(() => client.request(token, order, { send })));
  const proofError = { status: 401, error: 'invalid_dpop_proof' };
  await denied(ATTACKER, OIDC, 'the same proof again', { ...proofError, reason: 'proof_replayed' }, () =>
    attack.send(order, headers));
  // Unused proofs: the client signs them, but they go elsewhere.
  for (const [what, url, method] of [
    ['another URI', `${origin}/orders/8`, 'GET'],
    ['another method', order, 'PUT'],
  ]) {
    const unsent = await attack.unsentHeaders(client, token, order);
    await denied(ATTACKER, OIDC, `a proof for ${what}`, { ...proofError, reason: 'proof_mismatch' },
      () => attack.send(url, unsent, method));
  }
  await denied(ATTACKER, OIDC, 'a stolen DPoP token as a bearer, where DPoP is required', INVALID_TOKEN,
    () => attack.send(order, bearer(token)));
  await denied(ATTACKER, OIDC, 'a stolen DPoP token as a bearer, where none is required', INVALID_TOKEN,
    () => attack.send(`${origin}/bearer`, bearer(token)));
  const thief = await service(here, 'ES256', 'ES256');
  await denied(WEB, OIDC, 'a stolen token with a proof of the key of the thief', proofError, () =>
    answer(() => thief.request(token, order)));
}

async function wrongTokens(here) {
  const { origin, oidc, unknown, redirect } = here;
  const order = `${origin}/orders/7`;
  const invalid = (reason) => ({ ...INVALID_TOKEN, reason });
  const client = await service(here, 'ES256', 'ES256');
  for (const other of ['https://other.example', `${origin}/mcp`]) {
    const { access_token: token } = await client.clientCredentials('orders.read', other);
    await denied(WEB, OIDC, `a token for ${other.replace(origin, 'the origin ')}`, invalid('audience_mismatch'),
      () => answer(() => client.request(token, order)));
  }
  const stranger = await web.client({ issuer: unknown.issuer, id: 'service-ES256', secret, dpop: 'ES256' });
  const foreign = await stranger.clientCredentials('orders.read', origin);
  await denied(WEB, OIDC, 'an unknown issuer', INVALID_TOKEN, () =>
    answer(() => stranger.request(foreign.access_token, order)));

  const brief = await web.client({ issuer: oidc.issuer, id: 'short', secret, dpop: 'ES256' });
  const { access_token: expiring } = await brief.clientCredentials('orders.read', origin);
  await denied(WEB, OIDC, 'an expired token', invalid('expired'), () => until('the token to expire', async () => {
    const found = await answer(() => brief.request(expiring, order));
    return found.status !== 200 && found;
  }));

  const person = await user(oidc.issuer, 'web', 'ES256');
  const tokens = await person.code('openid offline_access orders.read', origin, redirect);
  for (const other of ['id_token', 'refresh_token']) {
    await denied(WEB, OIDC, `${other} with DPoP`, INVALID_TOKEN,
      () => answer(() => person.request(tokens[other], order)));
    await denied(ATTACKER, OIDC, `${other} as a bearer`, INVALID_TOKEN,
      () => attack.send(`${origin}/bearer`, bearer(tokens[other])));
  }

  const jwks = await (await fetch(`${oidc.issuer}/jwks`)).json();
  const { access_token: genuine } = await (await service(here, 'RS256')).clientCredentials('orders.read', origin);
  for (const [what, forged] of await attack.forgeries(genuine, jwks)) {
    await denied(ATTACKER, OIDC, what, INVALID_TOKEN,
      () => attack.send(`${origin}/bearer`, bearer(forged)));
  }
}

/** The issuer changes its keys, and nothing else changes. */
async function rotation(here, oldKeys, options) {
  const { origin } = here;
  const restart = async (keys) => {
    await here.oidc.stop();
    here.oidc = await startIssuer({ port: here.oidc.port, keys, ...options });
  };
  const newToken = async () => {
    const client = await service(here, 'RS256');
    const { access_token: token } = await client.clientCredentials('orders.read', origin);
    return bearer(token);
  };
  const at = `${origin}/bearer`;
  const before = await newToken();
  const newKeys = await signingKeys('new');
  await restart([...newKeys, ...oldKeys]);
  const after = await newToken();
  await allowed(WEB, OIDC, 'a token of a new key', () => attack.everywhere(at, after, ({ status }) => status === 200));
  await allowed(WEB, OIDC, 'a token of the old key, which is still published', () => attack.send(at, before));
  for (const alg of ALGORITHMS) {
    await allowed(WEB, OIDC, `client credentials after rotation, token ${alg}, DPoP`, async () => {
      const client = await service(here, alg, 'ES256');
      const token = await client.clientCredentials('orders.read', origin);
      return answer(() => client.request(token.access_token, `${origin}/orders/7`));
    });
  }
  await restart(newKeys);
  await denied(ATTACKER, OIDC, 'a token of a key that was withdrawn', { ...INVALID_TOKEN, reason: 'key_withdrawn' },
    () => attack.everywhere(at, before, ({ status }) => status === 401));
  await allowed(WEB, OIDC, 'a token of the new key', () => attack.send(at, after));
}

await main().catch(failed);
if (hasFailed()) console.log(`The output of the programs is in ${folder}.`);
else rmSync(folder, { recursive: true });
printCounts();
process.exit(hasFailed() ? 1 : 0);
