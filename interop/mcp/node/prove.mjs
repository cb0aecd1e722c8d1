// What a client adds to each request: the delegation and, where it is needed, a proof for this one request.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { AUDIENCE } from './credence.mjs';
import { PREFIX, PROMPT, READ } from './stack.mjs';

const run = promisify(execFile);

/** The headers of requests with this delegation; `proofs` has the program and the key, if requests need proofs. */
export function headers({ delegation, proofs }) {
  if (!delegation) return async () => ({});
  return async (method, body) => ({
    delegation,
    ...(proofs && { 'delegation-proof': await prove({ delegation, ...proofs }, method, body) }),
  });
}

async function prove({ delegation, program, key }, method, body) {
  const [tool, args] = use(method, body);
  const options = Object.entries(args).flatMap(([name, value]) => ['--arg-json', `${name}=${JSON.stringify(value)}`]);
  const { stdout } = await run(program, [
    'prove', '--chain', delegation, '--key', key, '--tool', tool, '--audience', AUDIENCE, ...options,
  ]);
  return stdout.trim();
}

/** The tool of a message's proof, and the arguments. */
export function use(httpMethod, body) {
  if (!body) return [httpMethod, {}];
  const { method = 'responses', params = {} } = JSON.parse(body);
  if (method === 'tools/call') return [PREFIX + params.name, params.arguments ?? {}];
  const { _meta, inputResponses, requestState, ...args } = params;
  return [{ 'resources/read': READ, 'prompts/get': PROMPT }[method] ?? method, args];
}
