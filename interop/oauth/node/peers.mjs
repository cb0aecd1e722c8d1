// Peers that are not written in JavaScript.

import { execFile, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { text } from 'node:stream/consumers';
import { start, until } from './processes.mjs';

const PYTHON = process.env.CREDENCE_OAUTH_PYTHON;
const PROGRAMS = join(process.env.CREDENCE_ROOT, 'interop/oauth/python');

/** Spring Authorization Server; undefined if it is not installed. */
export function startSpring({ port, redirect, resource, secret, folder }) {
  const home = process.env.CREDENCE_OAUTH_SPRING;
  if (!home) return undefined;
  const issuer = `http://127.0.0.1:${port}`;
  const settings = {
    issuer, resource, 'client.secret': secret, 'client.redirect': redirect,
    'server.address': '127.0.0.1', 'server.port': port,
  };
  const child = start('java', [
    // Half the time to start.
    '-XX:TieredStopAtLevel=1', '-cp', `${home}/classes:${home}/dependency/*`, 'oauth.Issuer',
    ...Object.entries(settings).map(([name, value]) => `--${name}=${value}`),
  ], join(folder, 'spring.log'));
  const isUp = async () => (await fetch(`${issuer}/oauth2/jwks`)).ok;
  return { issuer, child, ready: () => until('Spring Authorization Server', isUp, child) };
}

/** An issuer with Authlib. */
export function startAuthlib({ port, resource, secret, folder }) {
  const issuer = `http://127.0.0.1:${port}`;
  const program = join(PROGRAMS, 'authlib_issuer.py');
  const child = start(PYTHON, [program, port, resource, secret], join(folder, 'authlib.log'));
  return { issuer, child, ready: () => until('Authlib', async () => (await fetch(`${issuer}/jwks`)).ok, child) };
}

/** A client with Authlib. */
export function authlibClient(task) {
  const program = join(PROGRAMS, 'authlib_client.py');
  return new Promise((done, failed) => {
    const child = execFile(PYTHON, [program], { timeout: 60_000 }, (error, output, problem) =>
      error ? failed(new Error(problem || error.message)) : done(JSON.parse(output)));
    child.stdin.end(JSON.stringify(task));
  });
}

/** A client with Authlib that a person gives a token to: `visit` takes the person to a URL, and returns where they end. */
export async function authlibGrant(task, visit) {
  const options = { stdio: ['pipe', 'pipe', 'pipe'], timeout: 60_000 };
  const child = spawn(PYTHON, [join(PROGRAMS, 'authlib_grant.py')], options);
  const problem = text(child.stderr);
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const next = async () => {
    const { done, value } = await lines.next();
    if (done) throw new Error(await problem);
    return value;
  };
  try {
    child.stdin.write(`${JSON.stringify(task)}\n`);
    child.stdin.end(`${await visit(await next())}\n`);
    return JSON.parse(await next());
  } finally {
    child.kill();
  }
}
