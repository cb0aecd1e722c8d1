// The client library oauth4webapi, used as its examples do.

import * as oauth from 'oauth4webapi';
import { authorize } from './user.mjs';

// Only because everything is on the loopback address.
const LOCAL = { [oauth.allowInsecureRequests]: true };

/**
 * A client of an issuer. `dpop` is an algorithm; without it, tokens are bearers. `metadata` is `oidc`, or `oauth2` for
 * an issuer that has only that of RFC 8414.
 */
export async function client({ issuer, id, secret, dpop, metadata: algorithm = 'oidc' }) {
  const url = new URL(issuer);
  const discovered = await oauth.discoveryRequest(url, { ...LOCAL, algorithm });
  const server = await oauth.processDiscoveryResponse(url, discovered);
  const metadata = { client_id: id };
  const handle = dpop && oauth.DPoP(metadata, await oauth.generateKeyPair(dpop));
  const authentication = oauth.ClientSecretBasic(secret);
  const options = { ...LOCAL, DPoP: handle };

  return {
    async clientCredentials(scope, resource) {
      const parameters = { scope, resource };
      const response = await oauth.clientCredentialsGrantRequest(server, metadata, authentication, parameters, options);
      return oauth.processClientCredentialsResponse(server, metadata, response);
    },
    async code(scope, resource, redirect) {
      const verifier = oauth.generateRandomCodeVerifier();
      const state = oauth.generateRandomState();
      const query = {
        response_type: 'code', client_id: id, redirect_uri: redirect, scope, resource, state,
        // The issuer gives a refresh token only with consent.
        ...(scope.includes('offline_access') && { prompt: 'consent' }),
        code_challenge: await oauth.calculatePKCECodeChallenge(verifier), code_challenge_method: 'S256',
      };
      const at = await authorize(`${server.authorization_endpoint}?${new URLSearchParams(query)}`, redirect, secret);
      const answer = oauth.validateAuthResponse(server, metadata, at, state);
      const response = await oauth.authorizationCodeGrantRequest(
        server, metadata, authentication, answer, redirect, verifier,
        { ...options, additionalParameters: { resource } });
      return oauth.processAuthorizationCodeResponse(server, metadata, response);
    },
    /** A request to the service. A refusal that has challenges is an error with them. */
    async request(token, url, { method = 'GET', send = fetch } = {}) {
      return oauth.protectedResourceRequest(
        token, method, new URL(url), undefined, undefined, { ...options, [oauth.customFetch]: send });
    },
  };
}

/** The metadata of the service, which oauth4webapi checks. */
export async function resourceMetadata(resource) {
  const url = new URL(resource);
  return oauth.processResourceDiscoveryResponse(url, await oauth.resourceDiscoveryRequest(url, LOCAL));
}

export const isNonceError = oauth.isDPoPNonceError;
export const challengesOf = (error) => (error instanceof oauth.WWWAuthenticateChallengeError ? error.cause : undefined);
