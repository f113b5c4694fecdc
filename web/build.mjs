// Bundles the page into dist/: index.html; a script, a style sheet and an icon, named after their
// contents; and the licences of the libraries in it. Each also packed by gzip, as it is served.
//
//   node build.mjs            for a release
//   node build.mjs --watch    again at every change, readable
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build, context } from 'esbuild';

const root = dirname(fileURLToPath(import.meta.url));
const dist = join(root, 'dist');
const watch = process.argv.includes('--watch');
/** The most that all files may have, packed. */
const LIMIT = 200_000;

const options = {
  absWorkingDir: root,
  entryPoints: { app: 'src/main.tsx', style: 'style/all.css' },
  outdir: 'dist',
  bundle: true,
  write: false,
  format: 'esm',
  target: ['es2022', 'chrome111', 'firefox113', 'safari16.4'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  minify: !watch,
  legalComments: 'none',
  plugins: [{ name: 'files', setup: (bundle) => bundle.onEnd(write) }],
};

function licences() {
  const names = ['preact', '@preact/signals', '@preact/signals-core', 'uplot'];
  return names
    .map((name) => {
      const folder = join(root, 'node_modules', name);
      const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
      return `${name} ${version}\n\n${readFileSync(join(folder, 'LICENSE'), 'utf8').trim()}\n`;
    })
    .join('\n----\n\n');
}

function write(result) {
  if (result.errors.length > 0) return;
  const files = new Map();
  const icon = { path: 'icon.svg', contents: readFileSync(join(root, 'icon.svg')) };
  for (const { path, contents } of [...result.outputFiles, icon]) {
    const [, stem, ending] = /([a-z]+)\.([a-z]+)$/.exec(path);
    const hash = createHash('sha256').update(contents).digest('hex').slice(0, 16);
    files.set(`${stem}.${ending}`, { name: `${stem}-${hash}.${ending}`, contents });
  }
  let html = readFileSync(join(root, 'index.html'), 'utf8');
  for (const [stem, { name }] of files) html = html.replace(`/page/${stem}`, `/page/${name}`);
  const all = [...files.values()];
  all.push({ name: 'index.html', contents: Buffer.from(html) });
  all.push({ name: 'licences.txt', contents: Buffer.from(licences()) });
  rmSync(dist, { recursive: true, force: true });
  mkdirSync(dist, { recursive: true });
  let sum = 0;
  for (const { name, contents } of all) {
    const packed = gzipSync(contents, { level: 9 });
    sum += packed.length;
    writeFileSync(join(dist, name), contents);
    writeFileSync(join(dist, `${name}.gz`), packed);
    console.log(`${String(contents.length).padStart(8)} ${String(packed.length).padStart(7)}  ${name}`);
  }
  console.log(`${sum} bytes packed, at most ${LIMIT}`);
  if (sum > LIMIT) throw new Error('the page is too large');
}

if (watch) {
  await (await context(options)).watch();
} else {
  await build(options);
}
