// The command line of the MCP Inspector lists tools, and calls one.

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { sdkTest } from './report.mjs';
import { GRANT, expect } from './steps.mjs';

const PACKAGE = join(import.meta.dirname, 'node_modules/@modelcontextprotocol/inspector');
const PROGRAM = join(PACKAGE, 'clients/launcher/build/index.js');
const TOOL = 'test_x_mcp_header';

export async function testInspector({ credence, origin, servers, folder }) {
  for (const { name, evidence } of servers) {
    const delegation = await credence.mint(GRANT);
    evidence.begin();
    for (const era of ['legacy', 'modern']) {
      const inspect = async (...options) => {
        const { stdout } = await promisify(execFile)(process.execPath, [
          PROGRAM, '--cli', `${origin}/${name}/mcp`, '--transport', 'http', '--protocol-era', era, '--format', 'json',
          '--header', `delegation: ${delegation.chain}`, ...options,
        ], { env: { ...process.env, HOME: folder }, timeout: 60_000 });
        const output = JSON.parse(stdout);
        return output.result ?? output;
      };
      const call = (region) => inspect('--method', 'tools/call', '--tool-name', TOOL, '--tool-arg', `region=${region}`);
      const what = `@modelcontextprotocol/inspector with ${name}, ${era}`;
      await sdkTest(`${what}: lists the tools`, async () => {
        const { tools } = await inspect('--method', 'tools/list');
        expect(tools.some((tool) => tool.name === TOOL), true);
      });
      await sdkTest(`${what}: calls a tool`, async () => expect((await call('eu')).content[0].text, 'region=eu'));
      await sdkTest(`${what}: is denied another value of an argument`, async () => {
        const output = await call('cn').then(JSON.stringify, (error) => error.stderr + error.stdout);
        expect(output.includes('argument_not_allowed'), true);
      });
    }
    const reasons = ['argument_not_allowed'];
    await evidence.compare(`@modelcontextprotocol/inspector with ${name}`, { rule: name, delegation, reasons });
  }
}
