// Runs agents as the user `nobody`, under strace if it is installed: which files an agent opens is part of the test.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';

/** Users and groups have this number on Debian and most other systems. */
export const NOBODY = Number(execFileSync('id', ['-u', 'nobody'], { encoding: 'utf8' }));
const GROUP = Number(execFileSync('id', ['-g', 'nobody'], { encoding: 'utf8' }));

const running = new Set();
process.on('exit', () => running.forEach((child) => child.kill('SIGKILL')));

/** `strace` is the path of the program, or undefined. `keys` are the files that no agent may read. */
export function agents({ folder, strace, keys }) {
  const home = join(folder, 'home');
  mkdirSync(home);
  chownSync(home, NOBODY, GROUP);
  // Nothing else of this process's environment.
  const environment = { PATH: process.env.PATH, HOME: home, USER: 'nobody', LANG: 'C.UTF-8' };
  let traces = 0;

  /** Starts a program. `opened` tells about its attempts to open a key, once it has ended. */
  function start(command, options, more = {}) {
    const trace = strace && join(folder, `trace-${(traces += 1)}`);
    const settings = { cwd: home, env: { ...environment, ...more }, stdio: ['pipe', 'pipe', 'pipe'] };
    const child = strace
      // It follows the programs that the agent starts, and gives the agent's user to all of them.
      ? spawn(strace, [...TRACE, '-o', trace, command, ...options], settings)
      : spawn(command, options, { ...settings, uid: NOBODY, gid: GROUP });
    running.add(child);
    child.on('exit', () => running.delete(child));
    child.errors = '';
    child.stderr.setEncoding('utf8').on('data', (text) => (child.errors += text));
    child.opened = () => (trace && existsSync(trace) ? openings(readFileSync(trace, 'utf8'), keys) : undefined);
    return child;
  }

  return {
    /** Runs a program to its end. */
    async run(command, options, more) {
      const child = start(command, options, more);
      child.stdin.end();
      let output = '';
      child.stdout.setEncoding('utf8').on('data', (text) => (output += text));
      const [status] = await once(child, 'close');
      return { status, output, errors: child.errors, opened: child.opened() };
    },
    /** An agent that answers each line of JSON with one: first its options, then an action with its arguments. */
    async open(command, options, settings) {
      const child = start(command, options);
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      const ask = async (request) => {
        child.stdin.write(`${JSON.stringify(request)}\n`);
        const { value, done } = await Promise.race([lines.next(), pause(60_000, { value: '{"error":"no answer"}' })]);
        if (done) throw new Error(`the agent ended\n${child.errors}`);
        const { ok, error } = JSON.parse(value);
        if (error === undefined) return ok;
        throw new AgentError(error);
      };
      const agent = {
        ask: (...action) => ask(action),
        /** Ends it. Returns its attempts to open a key. */
        async close() {
          const ended = once(child, 'close');
          child.stdin.end();
          const timer = setTimeout(() => child.kill('SIGKILL'), 15_000);
          await ended;
          clearTimeout(timer);
          return child.opened();
        },
      };
      try {
        await ask(settings);
      } catch (error) {
        await agent.close();
        throw error;
      }
      return agent;
    },
  };
}

const TRACE = ['-u', 'nobody', '-f', '-qq', '-e', 'trace=open,openat,openat2'];

/** What an agent reports: the message has what its client saw. */
export class AgentError extends Error {}

/** The attempts in a trace to open one of these files, and how many succeeded. */
function openings(trace, files) {
  const lines = trace.split('\n');
  const attempts = lines.flatMap((line, index) => {
    if (!files.some((file) => line.includes(`"${file}"`))) return [];
    if (!line.includes('<unfinished')) return [line];
    const [process] = line.split(' ');
    const isRest = (later) => later.startsWith(`${process} `) && later.includes('resumed>');
    return [lines.slice(index).find(isRest) ?? line];
  });
  return { attempts: attempts.length, succeeded: attempts.filter((line) => !/ = -1 E/.test(line)).length };
}
