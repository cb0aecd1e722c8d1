// Puts the examples into README.md, where they are named: `npm run readme`, or with --check.

import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const path = (name) => fileURLToPath(new URL(`../${name}`, import.meta.url));
const readme = readFileSync(path("README.md"), "utf8");
const filled = readme.replace(/<!-- (examples\/[a-z]+\.mjs) -->\n\n```js\n[^]*?```\n/g, (_, name) => {
  return `<!-- ${name} -->\n\n\`\`\`js\n${readFileSync(path(name), "utf8")}\`\`\`\n`;
});
if (!process.argv.includes("--check")) writeFileSync(path("README.md"), filled);
else if (readme !== filled) {
  console.error("README.md differs from the examples; run `npm run readme`");
  process.exit(1);
}
