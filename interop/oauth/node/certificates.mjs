// Self-signed certificates: a token names its client's certificate by its digest, so no CA is needed.

import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

/** Paths of a new key and certificate, and their contents for Node's TLS. */
export async function selfSigned(folder, name) {
  const [key, cert] = [join(folder, `${name}.key`), join(folder, `${name}.crt`)];
  await promisify(execFile)('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '1',
    '-subj', `/CN=${name}`, '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert,
  ]);
  return { key, cert, pem: { key: readFileSync(key), cert: readFileSync(cert) } };
}
