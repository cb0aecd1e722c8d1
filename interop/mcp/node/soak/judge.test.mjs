// What the judge of generated requests allows.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ofJson, ofValue, problemOf, read, text } from './judge.mjs';
import { typed } from './record.mjs';

const range = (more) => ({ constraint_type: 'range', ...more });
const number = (written) => read(['n', written]);
const isAllowed = (constraint, value) => problemOf({ a: constraint }, new Map([['a', value]])) === undefined;

test('numbers are compared exactly, however they are written', () => {
  const equal = [['1', '1.0'], ['1e2', '100'], ['-0', '0'], ['0.1', '1e-1'], ['1E+21', '1000000000000000000000']];
  for (const [a, b] of equal) assert.equal(text(number(a)), text(number(b)), `${a} ${b}`);
  const different = [['1', '-1'], ['9007199254740992', '9007199254740993'], ['nan', 'inf'], ['1', '1.000000000001']];
  for (const [a, b] of different) assert.notEqual(text(number(a)), text(number(b)), `${a} ${b}`);
});

test('a range has its bounds, and nothing beyond them', () => {
  const cases = [
    [{ min: 0, max: 100 }, ['0', '-0', '100', '100.0', '1e2'], ['-1e-300', '100.00000000000001', '1e400', 'nan']],
    [{ max: 0.1, max_inclusive: false }, ['0.09', '-1e300'], ['0.1', '1e-1']],
    [{ min: 5, min_inclusive: false }, ['5.000000000000001'], ['5', '5.0', '4']],
  ];
  for (const [bounds, inside, outside] of cases) {
    for (const value of inside) assert(isAllowed(range(bounds), number(value)), value);
    for (const value of outside) assert(!isAllowed(range(bounds), number(value)), value);
  }
  for (const value of ['5', true, null, [number('5')]]) assert(!isAllowed(range({ min: 0 }), value));
});

test('values are equal with the same type only', () => {
  const values = [1, '1', true, null, [1], { a: 1 }, '', 'e\u0301', '\u00e9', []];
  for (const [place, one] of values.entries()) {
    for (const [other, another] of values.entries()) {
      const constraint = { constraint_type: 'one_of', values: [one] };
      assert.equal(isAllowed(constraint, ofValue(another)), place === other, JSON.stringify([one, another]));
    }
  }
  assert.equal(text(ofValue({ a: 1, b: 2 })), text(ofValue({ b: 2, a: 1 })));
});

test('each constraint allows what it says', () => {
  const not2 = { constraint_type: 'not_one_of', excluded: [2] };
  const x = { constraint_type: 'exact', value: 'x' };
  const cases = [
    [x, ['x'], ['X', 'x ', null]],
    [{ constraint_type: 'not_one_of', excluded: [7] }, ['7', 8], [7]],
    [{ constraint_type: 'contains', required: ['a'] }, [['a'], ['b', 'a']], [[], ['b'], 'a']],
    [{ constraint_type: 'subset', allowed: ['a', 'b'] }, [[], ['a', 'a']], [['c'], ['a', 'c'], 'a']],
    [{ constraint_type: 'wildcard' }, [null, {}, 'x'], []],
    [{ constraint_type: 'all', constraints: [range({ min: 1 }), not2] }, [1, 3], [0, 2]],
    [{ constraint_type: 'any', constraints: [range({ max: 1 }), x] }, [0, 'x'], [2, 'y']],
  ];
  for (const [constraint, allowed, denied] of cases) {
    for (const value of allowed) assert(isAllowed(constraint, ofValue(value)), JSON.stringify([constraint, value]));
    for (const value of denied) assert(!isAllowed(constraint, ofValue(value)), JSON.stringify([constraint, value]));
  }
});

test('arguments are granted by name', () => {
  const wildcard = { constraint_type: 'wildcard' };
  const args = (value) => ofValue(value);
  assert(problemOf(undefined, args({})));
  assert(problemOf({ a: wildcard }, args({})));
  assert(problemOf({ a: wildcard }, args({ a: 1, b: 1 })));
  assert(problemOf({}, args({ toString: 1 })));
  assert.equal(problemOf({ a: { ...wildcard, optional: true } }, args({})), undefined);
  assert.equal(problemOf({ '*': wildcard }, args({ b: 1 })), undefined);
  assert(problemOf({ '*': wildcard, b: range({ max: 0 }) }, args({ b: 1 })));
});

test('a value is read as it was written down', () => {
  const value = JSON.parse('{"__proto__":{"a":[1.5,"\\ud800",null,true,-0]},"b":1e400}');
  assert.equal(text(read(typed(value))), '{"__proto__":{"a":[15e-1,"\\ud800",null,true,0e0]},"b":Infinity}');
});

test('a JSON text has its numbers as written', () => {
  const json = '{"b":[9007199254740993,1e400,"5",{"__proto__":1.0}]}';
  assert.equal(text(ofJson(json)), '{"b":[9007199254740993e0,1e400,"5",{"__proto__":1e0}]}');
});
