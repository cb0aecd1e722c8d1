// What the servers of generated requests offer. The generator needs the same names.

/** Tools by name, with the JSON Schema of their arguments. Delegations may grant them. */
export const TOOLS = {
  pay: object({
    amount: { type: 'number' },
    currency: { type: 'string', 'x-mcp-header': 'Currency' },
    account: { type: 'string', 'x-mcp-header': 'Account' },
    memo: { type: 'string' },
  }, ['amount', 'currency', 'account']),
  set: object({
    on: { type: 'boolean', 'x-mcp-header': 'On' },
    level: { type: 'integer' },
    tags: { type: 'array', items: { type: 'string' } },
    options: { type: 'object' },
  }, ['on', 'level', 'tags']),
  note: object({ text: { type: 'string' } }, []),
  'caf\u00e9': object({ text: { type: 'string' } }, []),
};

/** Tools like `pay` that no delegation grants. A reader that folds names takes one for another. */
export const DECOYS = [
  'drop', 'Pay', 'PAY', 'pay ', ' pay', 'pay\t', 'pay.', 'pay/', '/pay', 'pay\u200b', '\ufeffpay', 'pay\u0301',
  'p\u0430y', '\uff50\uff41\uff59', 'pay\u0000', 'soak.pay', 'tools/call', 'Set', 'set\u00a0', 'cafe\u0301',
  'CAF\u00c9', 'cafe',
];

/** What resources and prompts the servers have. */
export const RESOURCES = ['test://doc/a', 'test://doc/b', 'test://doc/secret', 'test://other/a'];
export const PROMPTS = ['greet', 'Greet', 'admin'];

/** What the servers in Python need of this. */
export const NAMES = { decoys: DECOYS, notes: ['note', 'caf\u00e9'], resources: RESOURCES, prompts: PROMPTS };

function object(properties, required) {
  return { type: 'object', properties, required };
}
