// An issuer: oidc-provider, with a user who logs in and consents to everything.

import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { once } from 'node:events';
import { exportJWK, generateKeyPair } from 'jose';
import { Provider } from 'oidc-provider';

/** A signing key for each algorithm of access tokens. `generation` tells the key ids of two sets apart. */
export async function signingKeys(generation) {
  const keys = [];
  for (const alg of ALGORITHMS) {
    const { privateKey } = await generateKeyPair(alg, { extractable: true });
    keys.push({ ...(await exportJWK(privateKey)), alg, use: 'sig', kid: `${alg}-${generation}` });
  }
  return keys;
}

export const ALGORITHMS = ['RS256', 'ES256', 'EdDSA'];

/** Lifetime of the tokens of the client `short`, in seconds. */
export const SHORT_LIFETIME = 2;

/**
 * Starts the issuer at this port (0: a free one) with these keys. A restart at the same port rotates keys. Another port
 * has TLS with this certificate, for clients that have one (RFC 8705, section 5).
 */
export async function startIssuer({ port, keys, secret, redirect, certificate, consentUrls }) {
  const server = await listening(createServer(), port);
  const tlsServer = await listening(
    createTlsServer({ ...certificate.pem, requestCert: true, rejectUnauthorized: false }), 0);
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const tokenEndpoint = `https://127.0.0.1:${tlsServer.address().port}/token`;
  const provider = new Provider(issuer, configuration({ keys, secret, redirect, tokenEndpoint, consentUrls }));
  const handle = provider.callback();
  const servers = [server, tlsServer];
  const serve = (request, response) => {
    // A client that reused a connection across a restart would fail.
    response.setHeader('connection', 'close');
    const isInteraction = request.url.startsWith(INTERACTION);
    const answer = isInteraction ? interact(provider, request, response, secret) : handle(request, response);
    answer.catch((error) => response.writeHead(500).end(String(error)));
  };
  for (const one of servers) one.on('request', serve);
  return {
    issuer,
    port: server.address().port,
    stop: () => Promise.all(servers.map(closed)),
  };
}

async function listening(server, port) {
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

function closed(server) {
  server.closeAllConnections();
  return new Promise((done) => server.close(done));
}

function configuration({ keys, secret, redirect, tokenEndpoint, consentUrls }) {
  const service = (client_id) => ({
    client_id,
    client_secret: secret,
    grant_types: ['client_credentials'],
    redirect_uris: [],
    response_types: [],
  });
  return {
    jwks: { keys },
    clients: [
      ...ALGORITHMS.map((alg) => service(`service-${alg}`)),
      service('short'),
      { ...service('service-mtls'), tls_client_certificate_bound_access_tokens: true },
      {
        client_id: 'web',
        client_secret: secret,
        application_type: 'native',
        grant_types: ['authorization_code', 'refresh_token'],
        redirect_uris: [redirect],
        id_token_signed_response_alg: 'ES256',
      },
      {
        client_id: 'agent',
        application_type: 'native',
        token_endpoint_auth_method: 'none',
        grant_types: ['authorization_code', 'refresh_token'],
        redirect_uris: [redirect],
        id_token_signed_response_alg: 'ES256',
      },
      // Credence's issuers, where this provider's users grant.
      ...consentUrls.map((url) => ({
        client_id: url,
        client_secret: secret,
        application_type: url.startsWith('https:') ? 'web' : 'native',
        grant_types: ['authorization_code'],
        redirect_uris: [`${url}/callback`],
      })),
    ],
    claims: { openid: ['sub', 'groups'], profile: ['name'] },
    // The ID token has the claims of scopes, too.
    conformIdTokenClaims: false,
    scopes: ['openid', 'profile', 'offline_access'],
    pkce: { required: () => true },
    cookies: { keys: [secret] },
    ttl: TTL,
    discovery: { mtls_endpoint_aliases: { token_endpoint: tokenEndpoint } },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: ['staff'], ...PEOPLE[id] }) }),
    interactions: { url: (_, interaction) => `${INTERACTION}${interaction.uid}` },
    features: {
      devInteractions: { enabled: false },
      clientCredentials: { enabled: true },
      dPoP: { enabled: true },
      mTLS: {
        enabled: true,
        certificateBoundAccessTokens: true,
        getCertificate: (ctx) => ctx.socket.getPeerX509Certificate?.(),
      },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, audience, client) => ({
          scope: RESOURCE_SCOPES,
          audience,
          accessTokenFormat: 'jwt',
          accessTokenTTL: client.clientId === 'short' ? SHORT_LIFETIME : LIFETIME,
          jwt: { sign: { alg: ALGORITHMS.find((alg) => client.clientId === `service-${alg}`) ?? 'ES256' } },
        }),
      },
    },
  };
}

/** Logs the user in, and then grants all that the client asks for. In a real browser, the user has to sign in. */
async function interact(provider, request, response, password) {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    const isBrowser = request.headers['sec-fetch-mode'] === 'navigate';
    const accountId = isBrowser ? await signedIn(request, password) : personOf(request);
    if (accountId) return provider.interactionFinished(request, response, { login: { accountId } });
    return response.setHeader('content-type', 'text/html; charset=utf-8').end(SIGN_IN_PAGE);
  }
  // A grant with the new scopes replaces an earlier one.
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope = [], missingResourceScopes = {} } = prompt.details;
  grant.addOIDCScope(missingOIDCScope.join(' '));
  for (const [resource, scopes] of Object.entries(missingResourceScopes)) {
    grant.addResourceScope(resource, scopes.join(' '));
  }
  const grantId = await grant.save();
  return provider.interactionFinished(request, response, { consent: { grantId } });
}

/** Whom a browser logs in: without this cookie, Ada. */
export const PERSON = 'person';

function personOf({ headers: { cookie = '' } }) {
  const [, person] = cookie.match(new RegExp(`\\b${PERSON}=([^;]*)`)) ?? [];
  return decodeURIComponent(person ?? 'ada');
}

/** Claims, besides those that everyone has. */
const PEOPLE = {
  ada: { name: '<b>Ada</b>' },
  '"\'><script>sub</script>': { groups: ['staff', '"\'><script>group</script>'] },
};

/** The user who has filled in the page; all have the same password. */
async function signedIn(request, password) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const form = new URLSearchParams(Buffer.concat(chunks).toString());
  return form.get('password') === password && form.get('user');
}

// Without an icon of its own, a browser asks for one.
const SIGN_IN_PAGE = `<!doctype html><html lang="en"><title>Sign in</title><link rel="icon" href="data:,"><h1>Sign in</h1>
<form method="post"><p><label>User name <input name="user" autocomplete="username"></label>
<label>Password <input name="password" type="password" autocomplete="current-password"></label> <button>Sign in</button></form>`;

const INTERACTION = '/interaction/';
const LIFETIME = 600;
const ofResource = (_, token) => token.resourceServer?.accessTokenTTL ?? LIFETIME;
const TTL = {
  AccessToken: ofResource,
  ClientCredentials: ofResource,
  IdToken: LIFETIME,
  RefreshToken: LIFETIME,
  Grant: LIFETIME,
  Interaction: LIFETIME,
  Session: LIFETIME,
};
const RESOURCE_SCOPES = 'orders.read orders.write mcp mcp.tools';
