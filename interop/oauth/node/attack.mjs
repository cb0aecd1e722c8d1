// Requests that no honest client makes, and requests that must not share a connection.

import { createPublicKey } from 'node:crypto';
import { request as plainRequest } from 'node:http';
import { request as tlsRequest } from 'node:https';
import { SignJWT, base64url, decodeJwt, decodeProtectedHeader, exportJWK, generateKeyPair } from 'jose';
import { until } from './processes.mjs';

/** Sends a request on a connection of its own; to an https URL, with this certificate if there is one. */
export async function send(url, headers = {}, method = 'GET', certificate = undefined) {
  // The server is not the one under attack: its certificate does not matter.
  const tls = { ...certificate?.pem, rejectUnauthorized: false };
  const request = url.startsWith('https:') ? tlsRequest : plainRequest;
  const response = await new Promise((done, failed) =>
    request(url, { method, headers, agent: false, ...tls }, done).on('error', failed).end());
  const chunks = [];
  for await (const chunk of response) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const challenge = response.headers['www-authenticate'] ?? '';
  const pairs = [...challenge.matchAll(/(\w+)="([^"]*)"/g)].map(([, name, value]) => [name, value]);
  const body = text.startsWith('{') ? JSON.parse(text) : {};
  return { status: response.statusCode, ...summary(body, [{ parameters: Object.fromEntries(pairs) }]) };
}

/** Of a denial: the filter's own reason, and the first challenge. */
export function summary(body, challenges) {
  const [{ parameters }] = challenges;
  return { reason: body.reason, ...parameters };
}

/** Each connection is with one worker of Envoy: with this many, every worker has answered in this way. */
const CONNECTIONS = 24;

/** Waits until this many requests in a row, each on a connection of its own, have an answer as expected. */
export async function everywhere(url, headers, isExpected) {
  return until(`the same answer from every worker at ${url}`, async () => {
    let found;
    for (let sent = 0; sent < CONNECTIONS; sent += 1) {
      found = await send(url, headers);
      if (!isExpected(found)) throw new Error(JSON.stringify(found));
    }
    return found;
  });
}

/** The headers of a request that the client signed, but that was never sent. */
export async function unsentHeaders(client, token, url) {
  let headers;
  await client.request(token, url, { send: (_, init) => (headers = init.headers) && new Response('{}') });
  return headers;
}

/** Tokens like a genuine one that the issuer has not signed, each with its fault. */
export async function forgeries(genuine, jwks) {
  const claims = { ...decodeJwt(genuine), scope: 'orders.read orders.write' };
  const header = decodeProtectedHeader(genuine);
  const part = (value) => base64url.encode(JSON.stringify(value));
  const published = jwks.keys.find(({ kid }) => kid === header.kid);
  const pem = createPublicKey({ key: published, format: 'jwk' }).export({ type: 'spki', format: 'pem' });
  const own = await generateKeyPair(header.alg);
  const jwk = await exportJWK(own.publicKey);
  return [
    ['alg "none"', `${part({ ...header, alg: 'none' })}.${part(claims)}.`],
    ['HS256 with the public key as the secret',
      await new SignJWT(claims).setProtectedHeader({ ...header, alg: 'HS256' }).sign(Buffer.from(pem))],
    ['a key in the header', await new SignJWT(claims).setProtectedHeader({ ...header, jwk }).sign(own.privateKey)],
    ['changed claims', [genuine.split('.')[0], part(claims), genuine.split('.')[2]].join('.')],
  ];
}
