// Compares what the servers ran with what the delegations allow and with what the filter decided.

import { isDeepStrictEqual } from 'node:util';
import { delegationOf, proofOf } from './draft.mjs';
import { ofJson, problemOf, read, text } from './judge.mjs';
import { accessOf, readsMeta, toolOf } from './rules.mjs';
import { DECOYS, TOOLS } from './tools.mjs';

/** Kinds of disagreements. */
const NOT_GRANTED = 'a server ran what the delegation does not allow';
const UNPROVEN = 'a server ran what the proof is not for';
const UNDELEGATED = 'a server ran a request without a valid delegation';
const DENIED = 'a server ran what the filter denied';
const OTHER_DECISION = 'a server ran something else than the filter allowed';
const UNDECIDED = 'a server ran what no evidence allows';
const ALLOWED = 'the filter allowed what the delegation does not allow';
const NOT_RUN = 'a granted call in its plain form did not run';
const OTHER_LIST = 'a list does not show the granted tools';
const OTHER_SESSION = 'a server ran a call in a session of another delegation';

const TOOL_NAMES = [...Object.keys(TOOLS), ...DECOYS];

/** Collects disagreements. `caseOf` gives a case by its number, and `ownerOf` the owner of a session. */
export function checker({ caseOf, ownerOf, grants, delegations, servers }) {
  const disagreements = new Map();
  /** The names of the servers on which cases ran, by number. */
  const ran = new Map();
  const denied = new Set();
  /** What ran, by the id of its request, until the evidence is there. */
  const undecided = new Map();

  /** `key` is the number of a case; if it is not known, the id of the request. */
  const report = (kind, key, detail) => {
    if (!disagreements.has(key)) disagreements.set(key, []);
    disagreements.get(key).push({ kind, detail });
  };
  const constraintsOf = ({ tool, delegation_ids: ids }) =>
    grants[delegations.findIndex(({ id }) => ids.includes(id))]?.[tool];

  return {
    disagreements, ran,
    isUndecided: () => undecided.size > 0,
    /** The filter denied this case. */
    denied: (number) => denied.add(number),
    /** A server wrote this down. */
    ranOn(server, record) {
      const { case: number, decided } = record;
      const found = Number.isInteger(number) && number >= 0 ? caseOf(number) : undefined;
      const rule = record.rule ?? found?.rule;
      const access = record.method === 'tools/call' ? { tool: toolOf(rule, record.name) } : accessOf(record.method);
      // The sessions' own messages have no number.
      if (access?.open && number === -1) return undefined;
      const ranWhat = `on ${server.name} under the rule ${rule}: ${shortened(JSON.stringify(record))}`;
      const granted = found && delegationOf(found.draft, readsMeta(rule));
      if (granted === undefined || rule === 'open') return report(UNDELEGATED, number, ranWhat);
      if (access?.open) return undefined;
      ran.set(number, server.name);
      const args = read(record.arguments);
      // What the tool reads by name, in place of what was sent.
      for (const values of [args, new Map([...args, ...read(record.read)])]) {
        const problem = access ? problemOf(grants[granted][access.tool], values) : 'no rule allows the method';
        if (problem) return report(NOT_GRANTED, number, `${problem}; ${ranWhat}`);
      }
      if (rule === 'proven' && !isProven(found, granted, access.tool, record)) report(UNPROVEN, number, ranWhat);
      if (denied.has(number)) report(DENIED, number, ranWhat);
      const owner = server.hasSessions && record.session && ownerOf(server, record.session);
      if (owner && (owner.granted !== granted || owner.rule !== rule)) report(OTHER_SESSION, number, ranWhat);
      const tool = decided.tool && decodeURIComponent(decided.tool);
      if (tool !== access.tool || decided.delegation !== delegations[granted].id) {
        report(OTHER_DECISION, number, `the service was told ${JSON.stringify(decided)}; ${ranWhat}`);
      }
      const use = { number, server, rule, granted, tool: access.tool, record, ranWhat };
      undecided.set(record.request ?? Symbol('not through Envoy'), use);
      return undefined;
    },
    /** The ledger has this decision to allow. */
    allowedBy(event) {
      // Large arguments are recorded as a hash.
      const problem = event.tool && event.arguments && problemOf(constraintsOf(event), ofJson(event.arguments));
      if (problem) report(ALLOWED, event.request_id, `${problem}; ${shortened(JSON.stringify(event))}`);
      const use = undecided.get(event.request_id);
      if (!use) return;
      undecided.delete(event.request_id);
      const difference = differenceOf(event, use, delegations[use.granted].id);
      if (difference) report(OTHER_DECISION, use.number, `${difference}; ${use.ranWhat}`);
    },
    /** No more evidence will come. */
    endEvidence() {
      for (const { number, ranWhat } of undecided.values()) report(UNDECIDED, number, ranWhat);
      undecided.clear();
    },
    /** This case had to run, and got this answer. */
    mustHaveRun(number, answer) {
      if (!ran.has(number)) report(NOT_RUN, number, `the answer: ${answer.status} ${shortened(answer.body)}`);
    },
    /** The filter had to deny this case, and did not. */
    mustHaveDenied: (number, problem) => report(ALLOWED, number, problem),
    /** The answer to this case had to list the tools that the delegation grants. */
    mustHaveListed({ number, rule, granted }, { status, body }) {
      const expected = TOOL_NAMES.filter((name) => Object.hasOwn(grants[granted], toolOf(rule, name) ?? ''));
      if (isDeepStrictEqual(listed(body), expected.sort())) return;
      report(OTHER_LIST, number, `expected ${expected}; the answer: ${status} ${shortened(body)}`);
    },
    /** How many cases of a server ran, and how many disagree. */
    countsOf: (name) => ({
      ran: [...ran.values()].filter((one) => one === name).length,
      disagreements: [...disagreements.keys()].filter((key) => key >= 0 && caseOf(key).server.name === name).length,
    }),
    byKind() {
      const counts = {};
      for (const { kind } of [...disagreements.values()].flat()) counts[kind] = (counts[kind] ?? 0) + 1;
      return counts;
    },
    servers,
  };
}

/** The names in a list of tools, sorted; undefined if it is none. The message may be in a stream of events. */
function listed(body) {
  try {
    const message = JSON.parse(body.match(/^(?:[^{]*\ndata: |data: )?(\{.*)/)[1]);
    return message.result.tools.map(({ name }) => name).sort();
  } catch {
    return undefined;
  }
}

/** Whether the request's only proof is for this use. */
function isProven({ draft, proof }, granted, tool, record) {
  if (proofOf(draft, true) !== granted) return false;
  return proof.tool === tool && text(ofJson(proof.args)) === text(read(record.arguments));
}

/** What differs between a decision and what ran. */
function differenceOf(event, { server, rule, tool, record }, id) {
  const expected = { tool, rule: `${rule}-${server.name}`, mcp_method: record.method };
  const other = Object.keys(expected).find((name) => event[name] !== expected[name]);
  if (other) return `the evidence has ${other} ${JSON.stringify(event[other])}`;
  if (!event.delegation_ids.includes(id)) return `the evidence has the delegation ${event.delegation_ids}`;
  if (event.arguments === undefined) return undefined;
  const [decided, ran] = [ofJson(event.arguments), read(record.arguments)];
  // A server writes down only the name of a prompt.
  const isSame = record.method === 'prompts/get'
    ? text(decided.get('name') ?? null) === text(ran.get('name'))
    : text(decided) === text(ran);
  return isSame ? undefined : `the evidence has the arguments ${shortened(event.arguments)}`;
}

export function shortened(words) {
  return words.length > MOST_PRINTED ? `${words.slice(0, MOST_PRINTED)}… (${words.length} characters)` : words;
}

const MOST_PRINTED = 3000;
