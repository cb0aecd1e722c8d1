// Certificates for this machine, and requests to servers that have one.

import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { request as tlsRequest } from 'node:https';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** A certificate that no authority has signed: a token names its client's certificate by its digest. */
export const selfSigned = (folder, name) => certificate(folder, name, ['subjectAltName=IP:127.0.0.1']);

/** An authority, which signs certificates with these names. */
export async function authority(folder, name) {
  const own = await certificate(folder, name, ['basicConstraints=critical,CA:TRUE', 'keyUsage=critical,keyCertSign']);
  const signed = (subject, names) => certificate(
    folder, subject, ['basicConstraints=critical,CA:FALSE', `subjectAltName=${names}`],
    ['-CA', own.cert, '-CAkey', own.key]);
  return { ...own, signed };
}

/** Paths of a new key and certificate, and their contents for Node's TLS. */
async function certificate(folder, name, extensions, options = []) {
  const [key, cert] = [join(folder, `${name}.key`), join(folder, `${name}.crt`)];
  await promisify(execFile)('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1',
    '-subj', `/CN=${name}`, ...extensions.flatMap((extension) => ['-addext', extension]), ...options,
    '-keyout', key, '-out', cert,
  ]);
  return { key, cert, pem: { key: readFileSync(key), cert: readFileSync(cert) } };
}

/**
 * `fetch`, also from servers whose certificate this authority has signed, with a client certificate if there is one.
 * Redirects are not followed.
 */
export const fetchWith = (trusted, client) => async (url, options) => {
  if (!String(url).startsWith('https:')) return fetch(url, { ...options, redirect: 'manual' });
  // It sets the headers for the body.
  const asked = new Request(url, { method: options?.method, headers: options?.headers, body: options?.body });
  const request = tlsRequest(url, {
    method: asked.method, headers: Object.fromEntries(asked.headers), agent: false, ...client?.pem, ca: trusted.pem.cert,
  });
  request.end(await asked.text());
  const [response] = await once(request, 'response');
  const chunks = [];
  for await (const chunk of response) chunks.push(chunk);
  const headers = new Headers();
  for (const [name, values] of Object.entries(response.headersDistinct)) {
    for (const value of values) headers.append(name, value);
  }
  return new Response(Buffer.concat(chunks), { status: response.statusCode, headers });
};
