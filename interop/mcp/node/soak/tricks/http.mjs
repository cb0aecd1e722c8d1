// Tricks with the request's HTTP method, its path, its framing and its proof.

const HTTP_METHODS = [
  'GET', 'DELETE', 'PUT', 'PATCH', 'HEAD', 'OPTIONS', 'post', 'Post', 'QUERY', 'POSTX', 'TRACE',
];

function httpMethod(draft, random) {
  draft.httpMethod = random.pick(HTTP_METHODS);
  if (random.oneIn(2)) draft.message = undefined;
}

/** Other spellings of the path, and ways to it from the path that needs no delegation. */
function path(draft, random, { servers }) {
  const own = draft.path;
  const { name } = random.pick(servers);
  const open = `/open/${name}`;
  draft.path = random.pick([
    `${own}/`, `${own}//`, `${own}?x`, `${own}?x=1&name=drop`, `${own}#x`, `${own};x=1`, `${own}/.`, `${own}/x/..`,
    `${own}%00`, `${own}%20`, `${own}.json`, `${own}/x`, own.toUpperCase(), own.replace('mcp', 'MCP'),
    own.replace('mcp', 'mc%70'), own.replace('/mcp', '/./mcp'), own.replace('/mcp', '%2fmcp'), own.replace('/mcp', ''),
    `//${name}//mcp`, `/${name}/mcp`, `/proven/${name}/mcp`, `/named/${name}/mcp`, `/x/..${own}`, '/mcp', '*',
    `${open}/mcp`, `${open}//mcp`, `${open}/../../${name}/mcp`, `${open}/..%2f..%2f${name}%2fmcp`,
    `${open}/%2e%2e/mcp`, `${open}/..;/mcp`, `${open}/..\\mcp`, `${open}/.%2e/.%2e/${name}/mcp`,
    `http://127.0.0.1${own}`, `http://other.example${open}/../../${name}/mcp`,
  ]);
}

function framing(draft, random) {
  const size = () => 1 + random.below(80);
  draft.framing = random.pick([
    ...Array(6).fill({ kind: 'chunked', sizes: [size(), size(), size()] }),
    { kind: 'chunked', sizes: [1] },
    { kind: 'chunked', extension: ';x="\\"y"' },
    { kind: 'chunked', trailers: ['mcp-name: drop', 'mcp-method: tools/list', 'x-delegation-tool: soak.drop'] },
    { kind: 'chunked', trailers: ['delegation: x', 'content-length: 5'] },
    ...FRAMINGS.map((one) => ({ ...one, isOdd: true })),
  ]);
}

/** Those where one reader may see another end of the request. */
const FRAMINGS = [
  { kind: 'chunked', extra: ['content-length: 5'] },
  { kind: 'length', extra: ['transfer-encoding: chunked'] },
  { kind: 'length', extra: ['content-length: 5'] },
  { kind: 'length', extra: ['content-length : 5'] },
  { kind: 'length', wrongBy: -7 },
  { kind: 'length', wrongBy: 7 },
  { kind: 'length', lineEnd: '\n' },
  { kind: 'length', extra: ['x-folded: a\r\n mcp-name: drop'] },
  { kind: 'chunked', extra: ['transfer-encoding: identity'] },
  { kind: 'length', extra: ['transfer-encoding : chunked'] },
  { kind: 'length', extra: ['x-null: \u0000'] },
];

const OTHER_PROOFS = [
  { tool: 'soak.drop' }, { tool: 'soak.pay' }, { args: '{}' }, { args: '{"amount":1,"currency":"EUR","account":"a1"}' },
];

function proof(draft, random, { grants }) {
  const header = draft.headers.find(([name]) => name === 'delegation-proof');
  if (!header) {
    draft.headers.push(['delegation-proof', random.pick(['{proof:0}', 'x'])]);
    return;
  }
  random.pick([
    () => (draft.otherProof = random.pick(OTHER_PROOFS)),
    () => (header[1] = '{oldproof}'),
    () => (header[1] = `{proof:${random.below(grants.length)}}`),
    () => (draft.headers = draft.headers.filter((one) => one !== header)),
    () => draft.headers.push([...header]),
  ])();
}

export const HTTP_TRICKS = {
  'another HTTP method': httpMethod,
  'another path': path,
  'another framing': framing,
  'another proof': proof,
};
