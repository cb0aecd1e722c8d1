// Credence's issuer for the people of the shop: it takes clients that describe themselves.

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startIssuer } from './consent.mjs';
import { startDocuments } from './documents.mjs';
import { stop } from './processes.mjs';
import * as shop from './shop.mjs';

/** Starts it at this URL, with a server for the documents of clients. */
export async function startShopIssuer({ programs, folder, secret, url, origin, controlPlane, oidc, authority }) {
  const documents = await startDocuments(await authority.signed('shop-documents', 'IP:127.0.0.1'));
  const file = (name, text) => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const settings = {
    url,
    identity_provider: { issuer: oidc.issuer, client_id: url, client_secret_file: file('shop-secret', secret) },
    control_plane: { url: controlPlane, token_file: join(folder, 'operator-token') },
    keys_passphrase_file: file('shop-passphrase', secret),
    client_metadata: { hosts: ['127.0.0.1'], private_addresses: ['127.0.0.0/8'], ca: authority.cert },
    ...shop.consents(origin),
  };
  // JSON is valid YAML.
  const config = file('shop-issuer.yaml', JSON.stringify(settings));
  const child = await startIssuer({ programs, folder, url, config, name: 'shop-issuer', fetch });
  return { url, origin, secret, documents, stop: () => Promise.all([stop(child), documents.stop()]) };
}
