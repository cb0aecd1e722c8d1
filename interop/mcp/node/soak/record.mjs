// How a server writes down what it ran, so that the generator reads exactly the values that the server had.

/** The number of a request, and the rule of the route that Envoy chose. */
export const CASE_HEADER = 'x-soak-case';
export const RULE_HEADER = 'x-soak-rule';

/** A value with the type of each part. Numbers are text: JSON has no form for some of them. */
export function typed(value) {
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'string') return ['s', value];
  if (typeof value === 'number') return ['n', Object.is(value, -0) ? '-0' : String(value)];
  if (Array.isArray(value)) return ['a', value.map(typed)];
  if (typeof value === 'object') return ['o', Object.entries(value).map(([name, one]) => [name, typed(one)])];
  return ['?', String(value)];
}

/**
 * The line about a call that ran. Of `tools/call`, `name` is the tool. `read` has what the tool reads by name, which
 * may differ from the arguments.
 */
export function line(headers, { method, name, args, read = args }) {
  const values = { arguments: typed(args), read: typed(read) };
  return `${JSON.stringify({ ...requestOf(headers), method, name, ...values })}\n`;
}

function requestOf(headers) {
  const { [CASE_HEADER]: number = -1, [RULE_HEADER]: rule, 'x-request-id': id, 'mcp-session-id': session } = headers;
  const { 'x-delegation-tool': tool, 'x-delegation-id': delegation } = headers;
  return { case: Number(number), rule, request: id, session, decided: { tool, delegation } };
}
