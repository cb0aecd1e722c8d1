// Requests that no client library sends, for attacks on Credence's issuer.

import { SignJWT, calculateJwkThumbprint, exportJWK, generateKeyPair } from 'jose';
import { allow, browserOf, client } from './consent.mjs';

/** What the attacks ask for, if it does not matter. */
export const READ = { scope: 'orders.read' };

/** The answer to a form that a client posts. */
export async function post({ url, fetch: send }, path, parameters, headers) {
  const body = new URLSearchParams(parameters);
  const response = await send(url + path, { method: 'POST', body, headers });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text.startsWith('{') ? JSON.parse(text) : text };
}

/** The status and error of an answer. */
export const refusal = ({ status, body }) => [status, body.error];

/** The page at a path, as a browser without cookies gets it; it follows no redirect. */
export async function get({ url, fetch: send }, path) {
  const response = await send(url + path);
  const { status, headers } = response;
  return { status, headers, location: headers.get('location'), page: await response.text() };
}

/** A request in a URL, and its page. */
export async function asked(here, agent, changes) {
  const { page } = await agent.askInUrl({ ...READ, ...changes });
  return get(here, page.slice(here.url.length));
}

/** A code that is bound to no key, or as `changes` ask, and what redeems it. */
export async function code(here, id = 'planner', changes = {}) {
  const request = await (await client(here, id)).askInUrl({ ...READ, ...changes });
  const at = await allow(here, browserOf(here), request);
  return {
    grant_type: 'authorization_code', client_id: id, code: at.searchParams.get('code'), code_verifier: request.verifier,
    redirect_uri: here.redirect,
  };
}

/** A key for DPoP, and proofs of it. */
export async function prover() {
  const { publicKey, privateKey } = await generateKeyPair('ES256');
  const jwk = await exportJWK(publicKey);
  return {
    jwk,
    thumbprint: await calculateJwkThumbprint(jwk),
    async proof(htu, claims = {}) {
      const contents = { htm: 'POST', htu, jti: crypto.randomUUID(), iat: seconds(), ...claims };
      const proof = new SignJWT(contents).setProtectedHeader({ alg: 'ES256', typ: 'dpop+jwt', jwk });
      return { dpop: await proof.sign(privateKey) };
    },
  };
}

export const seconds = () => Math.floor(Date.now() / 1000);

/** A proof of a new key, for an endpoint of the issuer. */
export const proofFor = async ({ url }, path) => (await prover()).proof(url + path);
