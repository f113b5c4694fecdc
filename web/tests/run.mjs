// All tests of the page; arguments are passed on to node --test.
import { spawnSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const files = ['unit.test.mjs', 'page.test.mjs'].map((name) => join(here, name));
const ran = spawnSync(process.execPath, ['--test', ...process.argv.slice(2), ...files], { stdio: 'inherit' });
process.exit(ran.status ?? 1);
