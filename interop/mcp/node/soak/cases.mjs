// One generated request: the same for the same seed and number.

import { SESSIONS, STATELESS } from '../stack.mjs';
import { bodyOf, plainDraft, provenBy } from './draft.mjs';
import { PROMPT, READ } from './grants.mjs';
import { ofValue, problemOf } from './judge.mjs';
import { choices } from './random.mjs';
import { accessOf, readsMeta, toolOf } from './rules.mjs';
import { DECOYS, TOOLS } from './tools.mjs';
import { HEADER_TRICKS } from './tricks/headers.mjs';
import { HTTP_TRICKS } from './tricks/http.mjs';
import { MESSAGE_TRICKS } from './tricks/message.mjs';
import { TEXT_TRICKS } from './tricks/text.mjs';
import { argumentsFor } from './values.mjs';

const TRICKS = { ...HEADER_TRICKS, ...MESSAGE_TRICKS, ...TEXT_TRICKS, ...HTTP_TRICKS };
/** How often a trick is used, if not once. */
const WEIGHTS = {
  ...Object.fromEntries(Object.keys(TRICKS).map((name) => [name, 4])),
  'another argument': 12, 'a repeated member': 8, 'another name': 8, 'a large value': 2, 'another HTTP method': 2,
};

/** Makes cases. `grants` are the tools of each delegation. */
export function caseMaker({ seed, servers, grants }) {
  return (number) => {
    const random = choices(seed, number);
    const server = random.pick(servers);
    const rule = random.weighted({ plain: 8, proven: 1, named: 1 });
    const version = server.isStateless && !random.oneIn(3) ? STATELESS : random.pick(SESSIONS);
    const granted = random.below(grants.length);
    const call = callFor(grants[granted], rule, random);
    const isInMeta = readsMeta(rule) && random.oneIn(5);
    const draft = plainDraft({ number, server, rule, version, granted, isInMeta, call });
    const plainProof = provenBy(draft.message, (name) => toolOf(rule, name));
    // Mostly one trick: with two, the denial of one hides the other.
    const count = random.pick([0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 3]);
    const tricks = Array.from({ length: count }, () => random.weighted(WEIGHTS));
    for (const trick of tricks) TRICKS[trick](draft, choices(random.number()), { grants, servers });
    const wholeProof = random.oneIn(4) ? undefined : proofFor(draft.message, rule);
    const proof = { ...(wholeProof ?? plainProof), ...draft.otherProof };
    const access = call.method === 'tools/call' ? { tool: toolOf(rule, call.name) } : accessOf(call.method);
    const problem = access.open ? undefined : problemOf(grants[granted][access.tool], ofValue(call.args));
    return {
      number, server, rule, version, granted, tricks, proof, draft: { ...draft, body: bodyOf(draft) },
      /** In its plain form, a call is allowed and runs, or is denied because of this problem. */
      mustRun: !tricks.length && !access.open && problem === undefined,
      mustNotRun: tricks.length ? undefined : problem,
      mustList: !tricks.length && call.method === 'tools/list',
    };
  };
}

/** What a client that reads the message would prove. */
function proofFor(message, rule) {
  try {
    const proof = provenBy(message, (name) => toolOf(rule, name));
    JSON.parse(proof.args);
    return proof;
  } catch {
    return undefined;
  }
}

function callFor(tools, rule, random) {
  if (random.oneIn(40)) return { method: 'tools/list', args: {} };
  const names = Object.keys(TOOLS).filter((name) => Object.hasOwn(tools, toolOf(rule, name)));
  const granted = [
    ...names, ...names, ...names,
    ...(tools[READ] ? ['resources/read'] : []), ...(tools[PROMPT] ? ['prompts/get'] : []),
  ];
  const what = granted.length && !random.oneIn(8) ? random.pick(granted)
    : random.pick([...Object.keys(TOOLS), ...DECOYS, 'resources/read', 'prompts/get']);
  if (what === 'resources/read') return { method: what, args: argumentsFor('read', tools[READ], random) };
  if (what === 'prompts/get') return { method: what, args: argumentsFor('prompt', tools[PROMPT], random) };
  return { method: 'tools/call', name: what, args: argumentsFor(what, tools[toolOf(rule, what)], random) };
}
