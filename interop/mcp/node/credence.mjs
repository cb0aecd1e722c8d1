// The credence program: keys, delegations, proofs, revocations and evidence.

import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';

export const AUDIENCE = 'https://mcp.example';
export const ISSUER = 'https://id.example';

const run = promisify(execFile);

/** One installation: its keys are in `folder`, its control plane is at `http`. */
export function installation({ program, folder, http }) {
  const issuerKey = join(folder, 'issuer.jwk');
  const holderKey = join(folder, 'holder.jwk');
  const operator = ['--control-plane', `http://127.0.0.1:${http}`, '--token-file', join(folder, 'operator-token')];
  const credence = async (...options) => (await run(program, options, { maxBuffer: MAX_OUTPUT })).stdout.trim();
  return {
    program, holderKey,
    /** Creates the keys. Returns the public half of the issuer's. */
    async createKeys() {
      await credence('keygen', '--out', holderKey);
      return JSON.parse(await credence('keygen', '--out', issuerKey));
    },
    /** A delegation of these tools: an object of their names to constraints. */
    async mint(tools, { subject = 'ada', lifetime = '1h' } = {}) {
      const id = randomUUID();
      const file = join(folder, `tools-${id}.json`);
      writeFileSync(file, JSON.stringify(tools));
      const chain = await credence('mint', '--key', issuerKey, '--issuer', ISSUER, '--subject', subject,
        '--holder', holderKey, '--audience', AUDIENCE, '--tools', file, '--id', id, '--ttl', lifetime);
      return { id, chain };
    },
    /** Returns once no filter allows the delegation any more. */
    revoke: ({ chain }) => credence('revoke', 'delegation', '--chain', chain, ...operator),
    /** The decisions about the delegation in the ledger, newest first. */
    async decisions({ id }) {
      const found = await credence('audit', 'query', '--json', '--kind', 'decision', '--delegation', id,
        '--limit', '100000', ...operator);
      return found.split('\n').filter(Boolean).map((line) => JSON.parse(line));
    },
    /** The decisions to allow in the ledger from this index on, oldest first. */
    async allowedFrom(index) {
      const found = await credence('audit', 'export', '--kind', 'decision', '--decision', 'allow',
        '--from-index', String(index), ...operator);
      return found.split('\n').filter(Boolean).map((line) => JSON.parse(line));
    },
  };
}

const MAX_OUTPUT = 64 * 1024 * 1024;
