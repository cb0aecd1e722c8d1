// Follows a log with one line of JSON for each thing that a server did.

import { existsSync, readFileSync } from 'node:fs';

export function follow(file) {
  const read = () => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').filter(Boolean).map(JSON.parse) : []);
  return {
    /** What the action gives, and the lines that it adds. */
    async during(action) {
      const before = read().length;
      const result = await action();
      return { result, lines: read().slice(before) };
    },
  };
}
