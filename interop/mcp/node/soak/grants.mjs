// Generated delegations: some tools, with constraints on their arguments.

import { PROMPTS, RESOURCES } from './tools.mjs';

/** What tools are called in delegations. */
export const PREFIX = 'soak.';
export const READ = `${PREFIX}read`;
export const PROMPT = `${PREFIX}prompt`;

/** Values of arguments. */
export const ACCOUNTS = [
  'a1', 'a2', 'A1', 'caf\u00e9', 'cafe\u0301', '', 'a1 ', '1', 'true', 'null', '\u{1f600}', 'x'.repeat(40),
];
export const CURRENCIES = ['EUR', 'CHF', 'eur', 'USD'];
export const TAGS = ['x', 'y', 'z', 'X', '', 'caf\u00e9'];

const exact = (value) => ({ constraint_type: 'exact', value });
const oneOf = (values) => ({ constraint_type: 'one_of', values });
const notOneOf = (excluded) => ({ constraint_type: 'not_one_of', excluded });
const wildcard = { constraint_type: 'wildcard' };
const optional = (constraint) => ({ ...constraint, optional: true });

/**
 * The tools of one delegation: an object of their names to constraints. With `exclusions`, `not_one_of` also excludes
 * values that a server reads out of others: the SDKs normalise addresses, and Python's converts `"yes"` into `true`.
 */
export function grant(random, { exclusions } = {}) {
  const tools = {};
  if (!random.oneIn(6)) tools[`${PREFIX}pay`] = payment(random);
  if (!random.oneIn(3)) tools[`${PREFIX}set`] = setting(random, exclusions);
  if (!random.oneIn(3)) tools[`${PREFIX}note`] = note(random);
  if (!random.oneIn(3)) tools[`${PREFIX}caf\u00e9`] = note(random);
  const uri = exclusions ? notOneOf(['test://doc/secret']) : oneOf(some(RESOURCES, random));
  if (!random.oneIn(3)) tools[READ] = { uri };
  if (!random.oneIn(3)) tools[PROMPT] = { name: random.oneIn(2) ? exact('greet') : oneOf(some(PROMPTS, random)) };
  // A delegation grants at least one tool.
  if (!Object.keys(tools).length) tools[`${PREFIX}other`] = {};
  return tools;
}

function payment(random) {
  const tool = {
    amount: amount(random),
    currency: random.pick([oneOf(some(CURRENCIES, random)), exact('EUR'), notOneOf(['USD', 'eur']), wildcard]),
    account: random.pick([
      oneOf(some(ACCOUNTS, random)), exact('a1'), exact('caf\u00e9'), notOneOf(['a2', 'cafe\u0301']),
    ]),
  };
  const memo = random.pick([undefined, wildcard, exact(''), oneOf(['1', 'true', 'null', 'caf\u00e9'])]);
  if (memo) tool.memo = optional(memo);
  if (random.oneIn(3)) tool['*'] = wildcard;
  return tool;
}

/** Bounds and values where readers of numbers may differ. */
export const NUMBERS = [
  0, 1, 5, 10, 100, 0.1, 0.5, 99.99, -1, -0.1, 1e-7, 5e-324, 1e15, 2 ** 53 - 1, 2 ** 53, 1e21, 1.7976931348623157e308,
];

function amount(random) {
  const range = () => {
    const [min, max] = [random.pick(NUMBERS), random.pick(NUMBERS)].sort((a, b) => a - b);
    const bounds = random.pick([{ max }, { max }, { min, max }, { min }]);
    if (random.oneIn(3) && min < max) bounds[`${random.pick(Object.keys(bounds))}_inclusive`] = false;
    return { constraint_type: 'range', ...bounds };
  };
  return random.pick([
    range, range, range, range,
    () => exact(random.pick(NUMBERS)),
    () => oneOf(some(NUMBERS, random)),
    () => ({ constraint_type: 'any', constraints: [range(), exact(random.pick(NUMBERS))] }),
    () => ({ constraint_type: 'all', constraints: [range(), notOneOf(some(NUMBERS, random))] }),
  ])();
}

function setting(random, exclusions) {
  const tool = {
    on: exclusions ? notOneOf([true]) : random.pick([exact(true), exact(false), oneOf([true, false])]),
    tags: random.pick([
      { constraint_type: 'subset', allowed: some(TAGS, random) },
      { constraint_type: 'contains', required: some(TAGS, random).slice(0, 2) },
      wildcard,
    ]),
  };
  const level = { constraint_type: 'range', min: random.below(5), max: 5 + random.below(5) };
  if (random.oneIn(2)) tool.level = optional(level);
  if (random.oneIn(2)) tool.options = optional(wildcard);
  return tool;
}

const note = (random) => random.pick([
  { text: wildcard },
  { text: optional(oneOf(['a1', 'a2'])), '*': wildcard },
  { text: optional(oneOf(['a1', 'a2'])), '*': wildcard },
  { text: oneOf(some(ACCOUNTS, random)) },
  { text: notOneOf(['', 'a1']) },
]);

/** At least one of them. */
function some(list, random) {
  const found = list.filter(() => random.oneIn(2));
  return found.length ? found : [random.pick(list)];
}
