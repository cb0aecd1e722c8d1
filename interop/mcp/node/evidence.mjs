// Compares what a server ran with what the ledger says.

import { existsSync, readFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';
import { until } from '../../oauth/node/processes.mjs';
import { count, result } from './report.mjs';
import { PREFIX, PROMPT, READ } from './stack.mjs';

/** Follows what a server logs. */
export function follow({ credence, log }) {
  const read = () => (existsSync(log) ? readFileSync(log, 'utf8').split('\n').filter(Boolean).map(JSON.parse) : []);
  let seen = 0;
  const ran = () => read().slice(seen).map(asUse);
  return {
    /** What ran before this is not compared. */
    begin: () => (seen = read().length),
    ran,
    /**
     * Whether this rule allowed each use, for the same tool and arguments and with this delegation; and whether it
     * allowed these methods, and denied requests for these reasons.
     */
    async compare(what, { rule, delegation, methods = [], reasons = [] }) {
      const uses = ran();
      let decisions;
      let missing;
      let absent;
      // The filter sends evidence within milliseconds.
      await until('the evidence', async () => {
        decisions = (await credence.decisions(delegation)).filter((event) => event.rule === rule);
        const [allowed, denied] = ['allow', 'deny'].map((decision) =>
          decisions.filter((event) => event.decision === decision));
        missing = unmatched(uses, allowed);
        absent = [
          ...methods.filter((method) => !allowed.some((event) => event.mcp_method === method)),
          ...reasons.filter((reason) => !denied.some((event) => event.reason === reason)),
        ];
        return !missing.length && !absent.length;
      }).catch(() => {});
      count('decided_by_mcp_rules', uses.length - missing.length);
      const problems = [
        ...missing.map((use) => `no allowed request for ${JSON.stringify(use)}`),
        ...absent.map((name) => `no decision about ${name}`),
      ];
      const summary = `${what}: ${uses.length} uses among ${decisions.length} decisions`;
      result('evidence', summary, problems.length ? problems.join('\n') : undefined);
    },
  };
}

/** A line of a server's log, as a use of a tool of delegations. */
function asUse({ tool, prompt, resource, arguments: args }) {
  if (tool) return { tool: PREFIX + tool, arguments: args };
  if (resource) return { tool: READ, arguments: { uri: resource } };
  return { tool: PROMPT, arguments: { name: prompt, ...(Object.keys(args).length && { arguments: args }) } };
}

/** The uses that have no event of their own. */
function unmatched(uses, events) {
  const left = [...events];
  return uses.filter((use) => {
    const found = left.findIndex(({ tool, arguments: json }) =>
      tool === use.tool && isDeepStrictEqual(JSON.parse(json), use.arguments));
    if (found >= 0) left.splice(found, 1);
    return found < 0;
  });
}
