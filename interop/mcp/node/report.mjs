// Prints a line for each result, and counts them.

const counts = {
  scenarios: 0, passed_direct: 0, passed_through: 0, decided_by_mcp_rules: 0, sdk_tests: 0, failed: 0,
};

/** One result of this kind; `problem` is undefined if all is well. */
export function result(kind, what, problem) {
  console.log(`${problem ? 'FAILED' : 'ok    '}  ${kind}  ${what}`);
  if (problem) failed(problem);
}

/** What one client of an SDK does. */
export async function sdkTest(what, action) {
  counts.sdk_tests += 1;
  const problem = await action().then(() => undefined, (error) => error);
  result('sdk', what, problem);
}

/** A result that says nothing about the filter, such as a scenario that fails without it, too. */
export const leftOut = (kind, what) => console.log(`-       ${kind}  ${what}`);

/** Counts a failure, also one outside of the results. */
export function failed(problem) {
  counts.failed += 1;
  const denial = problem.denial ? `\n${JSON.stringify(problem.denial)}` : '';
  console.log(`${problem.stack ?? problem}${denial}`.replace(/^/gm, '        '));
}

export const count = (name, more = 1) => (counts[name] += more);

export const hasFailed = () => counts.failed > 0;

/** Prints the last line of output. */
export const printCounts = () => console.log(JSON.stringify(counts));
