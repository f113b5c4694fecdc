// The page in a real Chromium, asking a real server about real packets.
//
//   TAPDEX=target/release/tapdex node --test web/tests/page.test.mjs
//
// Needs a tapdex that was built with the page, and Chromium (apt-get install chromium). Without
// them the tests are skipped, and say so. Pictures of each state go to web/artefacts.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import {
  ask, browserPath, count, openBrowser, openPage, picture, place, serve, start, tapdex, tapdexPath,
} from './place.mjs';
import { capture, frame } from './frames.mjs';

const missing = tapdexPath === undefined ? 'there is no tapdex: cargo build, or set TAPDEX'
  : browserPath === undefined ? 'there is no Chromium: apt-get install chromium, or set CHROMIUM' : false;
if (missing) console.log(`the page is not tested: ${missing}`);
const options = { skip: missing, timeout: 240_000 };
const PACKETS = 200_000;

let here;
let server;
let browser;

before(async () => {
  if (missing) return;
  here = place();
  tapdex('gen', '--quiet', '-c', String(PACKETS), '--rate', '500', '-w', here.path('a.pcap'));
  tapdex('index', '--quiet', here.path('a.pcap'), '-o', here.path('archive'));
  server = await serve(here.path('archive'), here.path('state'), '--listen', '127.0.0.1:0');
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
  await server?.stop();
  here?.remove();
});

const cli = (filter, ...more) =>
  Number(tapdex('search', '-r', here.path('archive'), '--count', ...more, filter).trim());

/** Opens a view, runs, and looks whether anything went wrong in the page meanwhile. */
async function on(view, run, more = {}) {
  const page = await openPage(browser, undefined, more);
  try {
    await page.goto(new URL(view, more.url ?? server.url).href);
    await run(page);
    assert.deepEqual(page.problems, []);
    for (const origin of page.asked) assert.match(origin, /^(http:\/\/127\.0\.0\.1:\d+|null)$/);
  } catch (error) {
    await picture(page, `failed-${view.replace(/\W+/g, '-').slice(0, 40)}`).catch(() => undefined);
    throw error;
  } finally {
    await page.context().close();
  }
}

/** The times of the address. */
const times = (page) => new URL(page.url()).searchParams;
const filter = (page) => times(page).get('q') ?? '';

test('it loads, and has five questions to start with', options, () => on('/', async (page) => {
  assert.equal(await count(page), PACKETS);
  await page.waitForSelector('#first');
  assert.equal(await page.locator('.q').count(), 5);
  await page.waitForFunction(() => [...document.querySelectorAll('.q .cn b')].every((b) => b.textContent !== ''));
  await picture(page, 'first-run');
  await page.keyboard.press('2');
  await page.waitForSelector('#timeline canvas');
  assert.equal(await count(page), cli('tcp[tcpflags] & tcp-rst != 0'));
}));

test('the count is that of tapdex search --count', options, () => on('/explore?q=udp', async (page) => {
  for (const text of [
    'net 10.1.0.0/16 and not port 22', 'udp port 53 and not net 10.0.0.0/8', 'vlan and tcp',
    'ip.addr == 10.1.0.0/16 && !(tcp.port == 22)', 'tcp.flags.syn == 1 && tcp.flags.ack == 0',
    'tcp[20:4] = 0x47455420', 'host 192.0.2.77',
  ]) assert.equal(await ask(page, text), cli(text), text);
  await picture(page, 'nothing-matches');
  assert.match(await page.textContent('.panel-list'), /No packet matches/);
}));

test('an error is under the very character', options, () => on('/explore?q=udp', async (page) => {
  assert.equal(await count(page), cli('udp'));
  await page.fill('#q', 'net 10.1.0.0/16 and hots 10.1.4.23');
  await page.waitForSelector('.ferr .car');
  const at = await page.evaluate(() => {
    const left = (node, from) => {
      const range = document.createRange();
      range.setStart(node, from);
      range.setEnd(node, from + 4);
      return [range.getBoundingClientRect().left, range.getBoundingClientRect().width];
    };
    const carets = document.querySelector('.car').lastChild;
    const word = [...document.querySelectorAll('.hl span')].find((one) => one.textContent === 'hots');
    return [left(carets, 0), left(word.firstChild, 0), carets.textContent, word.className];
  });
  assert.ok(Math.abs(at[0][0] - at[1][0]) < 1.5, JSON.stringify(at));
  assert.ok(Math.abs(at[0][1] - at[1][1]) < 1.5, JSON.stringify(at));
  assert.equal(at[2], '^^^^');
  assert.match(at[3], /er/);
  // The last right answer stays, and says so; what is wrong cannot be taken away.
  assert.match(await page.textContent('.sum'), /the answer to the last filter that was right/);
  assert.equal(await page.getAttribute('#download', 'aria-disabled'), 'true');
  assert.equal(await page.getAttribute('#q', 'aria-invalid'), 'true');
  await picture(page, 'error');
  await page.click('.ferr .link');
  assert.equal(filter(page), 'net 10.1.0.0/16 and host 10.1.4.23');
  assert.equal(await count(page), cli('net 10.1.0.0/16 and host 10.1.4.23'));
}));

test('words and values are completed', options, () => on('/explore', async (page) => {
  await count(page);
  await page.click('#q');
  await page.keyboard.type('udp po');
  await page.waitForSelector('#choices [role=option]');
  assert.match(await page.textContent('#choices'), /port/);
  await page.keyboard.press('Tab');
  assert.equal(await page.inputValue('#q'), 'udp port ');
  await page.keyboard.type('5');
  await page.waitForFunction(() => /values/.test(document.querySelector('.compl h3')?.textContent ?? ''));
  await picture(page, 'completion');
  const first = await page.textContent('#choice-0 .mono');
  assert.match(first, /^5\d*$/);
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('#choices').count(), 0);
}));

test('dragging zooms, and Back undoes it', options, () => on('/explore?q=tcp', async (page) => {
  const before = await count(page);
  await page.waitForSelector('#timeline .u-over');
  const box = await page.locator('#timeline .u-over').boundingBox();
  await page.mouse.move(box.x + 0.25 * box.width, box.y + 40);
  await page.mouse.down();
  await page.mouse.move(box.x + 0.5 * box.width, box.y + 50, { steps: 8 });
  await picture(page, 'zoom-drawing');
  await page.mouse.up();
  await page.waitForFunction(() => new URLSearchParams(location.search).has('from'));
  await page.waitForTimeout(100);
  const zoomed = await count(page);
  const [from, to] = [times(page).get('from'), times(page).get('to')];
  assert.equal(zoomed, cli('tcp', '--from', from, '--to', to));
  assert.ok(zoomed < before / 2 && zoomed > before / 8, `${zoomed} of ${before}`);
  const seconds = (Date.parse(to) - Date.parse(from)) / 1000;
  assert.ok(seconds > 90 && seconds < 110, `${from} ${to}`);
  // The wheel zooms in around the pointer.
  await page.mouse.move(box.x + box.width / 2, box.y + 40);
  await page.mouse.wheel(0, -100);
  await page.waitForFunction((old) => new URLSearchParams(location.search).get('from') !== old, from);
  await page.waitForTimeout(100);
  const closer = await count(page);
  assert.ok(closer < zoomed);
  await page.goBack();
  await page.waitForTimeout(100);
  assert.equal(await count(page), zoomed);
  await page.goBack();
  await page.waitForTimeout(100);
  assert.equal(await count(page), before);
  assert.equal(times(page).get('from'), null);
  // Keys do the same.
  await page.locator('.strip').click();
  await page.keyboard.press('+');
  await page.waitForFunction(() => new URLSearchParams(location.search).has('from'));
  await page.keyboard.press('0');
  await page.waitForTimeout(100);
  assert.equal(await count(page), before);
}));

test('a top value is a term, also without', options, () => on('/explore?sort=time', async (page) => {
  await count(page);
  await page.waitForSelector('.panel[aria-label=Sources] .tv');
  const source = await page.getAttribute('.panel[aria-label=Sources] .tv', 'data-value');
  await page.click('.panel[aria-label=Sources] .tv .v');
  assert.equal(filter(page), `src host ${source}`);
  assert.equal(await count(page), cli(`src host ${source}`));
  await page.waitForSelector('.panel[aria-label=Protocols] .tv');
  await page.waitForTimeout(300);
  const protocol = await page.getAttribute('.panel[aria-label=Protocols] .tv', 'data-value');
  await page.click('.panel[aria-label=Protocols] .tv .v', { modifiers: ['Alt'] });
  assert.equal(filter(page), `src host ${source} and not ${protocol}`);
  assert.equal(await count(page), cli(`src host ${source} and not ${protocol}`));
}));

test('a packet opens: fields, bytes, its conversation', options, () => on('/explore?q=tcp+and+ip', async (page) => {
  await count(page);
  await page.waitForSelector('.vr[data-id]');
  await page.click('.vr >> nth=4');
  await page.waitForSelector('#fields [data-field="ip.dst"]');
  const id = times(page).get('p');
  const one = await (await fetch(new URL(`/api/v1/packets/${encodeURIComponent(id)}`, server.url))).json();
  const field = one.layers.flatMap(({ fields }) => fields).find(({ name }) => name === 'ip.dst');
  await page.click('#fields [data-field="ip.dst"]');
  await page.mouse.move(5, 5);
  const lit = await page.locator('#bytes .bs .on').allTextContents();
  assert.equal(lit.join(''), one.hex.slice(2 * field.offset, 2 * (field.offset + field.length)));
  assert.equal(lit.map((byte) => Number.parseInt(byte, 16)).join('.'), one.packet.dst);
  // Bytes light their field.
  await page.hover('#bytes .bs [data-at="23"]');
  assert.match(await page.textContent('.fd.on'), /Protocol6 \(TCP\)/);
  await page.mouse.move(5, 5);
  await picture(page, 'packet');
  const all = await page.locator('#bytes .bs span').allTextContents();
  assert.equal(all.join(''), one.hex);
  // The packet alone, as a file.
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('.det-a .btn:has-text("This packet")')]);
  await file.saveAs(here.path('one.pcap'));
  const dump = execFileSync('tcpdump', ['-xx', '-nn', '-r', here.path('one.pcap')], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const bytes = dump.split('\n').filter((line) => line.includes('0x')).map((line) => line.slice(10).replace(/\s/g, '')).join('');
  assert.equal(bytes, one.hex);
  // The number of elements stays small, however many packets there are.
  assert.ok(await page.evaluate(() => document.querySelectorAll('.vr').length) <= 80);
  await page.keyboard.press('f');
  await page.waitForFunction(() => /host .* and host .* and tcp port/.test(new URLSearchParams(location.search).get('q')));
  const conversation = await count(page);
  assert.ok(conversation >= 1);
  assert.equal(conversation, cli(filter(page)));
}));

test('the capture is that of tapdex extract', options, () => on('/explore?q=udp+port+53', async (page) => {
  await count(page);
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('#download')]);
  const path = here.path('downloaded.pcapng');
  await file.saveAs(path);
  tapdex('extract', '-r', here.path('archive'), 'udp port 53', '-w', here.path('extracted.pcapng'));
  const dump = (name) => execFileSync('tcpdump', ['-nn', '-tttt', '-xx', '-r', name], { stdio: ['ignore', 'pipe', 'ignore'], maxBuffer: 1 << 28 });
  const downloaded = dump(path);
  assert.ok(downloaded.length > 1000);
  assert.ok(downloaded.equals(dump(here.path('extracted.pcapng'))));
  // The command that is shown gives the number that is shown.
  await page.keyboard.press('Shift+C');
  const command = await page.textContent('.dlg .cmd code');
  assert.match(command, /^tapdex search --count -r http/);
  const shell = execFileSync('sh', ['-c', command.replace(/^tapdex/, tapdexPath)], { encoding: 'utf8' });
  assert.equal(Number(shell.trim()), await count(page));
  await picture(page, 'commands');
}));

test('a link has the whole state', options, () => on('/explore?q=tcp&by=bytes&stack=dst&from=2026-01-05T08:01:00Z&to=2026-01-05T08:03:00Z', async (page) => {
  const number = await count(page);
  await page.waitForSelector('.vr[data-id]');
  await page.click('.vr >> nth=3');
  await page.waitForSelector('#fields [data-field="tcp.srcport"]');
  await page.click('#fields [data-field="tcp.srcport"]');
  const url = page.url();
  assert.match(url, /&p=.*&f=tcp\.srcport/);
  await on(url, async (other) => {
    assert.equal(await count(other), number);
    await other.waitForSelector('.fd.on[data-field="tcp.srcport"]');
    assert.equal(await other.getAttribute('.seg [aria-checked=true] >> nth=1', 'aria-checked'), 'true');
    assert.equal(await other.inputValue('select[aria-label="Stacked by"]'), 'dst');
    await other.waitForFunction(() => document.querySelector('.vr[aria-selected=true]') !== null);
  });
  // Back closes what was opened.
  await page.goBack();
  await page.waitForFunction(() => document.querySelector('#packet') === null);
}));

test('200,000 rows: the last one, and one in the middle', options, () => on('/explore?sort=time', async (page) => {
  await count(page);
  await page.waitForSelector('.vr[data-id]');
  await page.click('.vlist');
  await page.keyboard.press('End');
  await page.waitForFunction((last) => document.querySelector(`#row-${last}[data-id]`) !== null, PACKETS - 1);
  const archive = JSON.parse(tapdex('info', '-r', here.path('archive'), '--json').split('\n')[0]);
  const [, clock] = archive.last.split('T');
  assert.equal(await page.textContent(`#row-${PACKETS - 1} [role=gridcell]`), clock.replace('Z', ''));
  // A row in the middle is just the one that comes at that place in order of time.
  await page.evaluate(() => { document.querySelector('.vlist').scrollTop = 22 * 123_456; });
  await page.waitForSelector('#row-123456[data-id]');
  const id = await page.getAttribute('#row-123456', 'data-id');
  assert.match(id, /:123456$/);
  assert.ok(await page.evaluate(() => document.querySelectorAll('.vr').length) <= 80);
  await picture(page, 'rows');
}));

test('conversations, and their packets', options, () => on('/explore?q=tcp&tab=flows', async (page) => {
  await page.waitForSelector('.of-flows .vr');
  const flows = tapdex('flows', '-r', here.path('archive'), '-n', '1', '--json', 'tcp');
  const first = JSON.parse(flows.split('\n')[0]);
  assert.match(await page.textContent('.of-flows .vr'), new RegExp(first.community_id.replaceAll(/[+/]/g, '.')));
  await picture(page, 'conversations');
  await page.click('.of-flows .vr');
  await page.keyboard.press('f');
  await page.waitForFunction(() => new URLSearchParams(location.search).get('tab') === null);
  assert.equal(await count(page), first.client_packets + first.server_packets);
}));

test('everything works by keyboard alone', options, () => on('/explore?q=tcp', async (page) => {
  await count(page);
  await page.waitForSelector('.vr[data-id]');
  await page.keyboard.press('/');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'q');
  await page.keyboard.type(' and port 443');
  await page.waitForTimeout(200);
  assert.equal(await count(page), cli('tcp and port 443'));
  await page.keyboard.press('Enter');
  const panes = [];
  for (let n = 0; n < 4; n += 1) {
    await page.keyboard.press('F6');
    panes.push(await page.evaluate(() => document.activeElement.id || document.activeElement.getAttribute('role')));
  }
  assert.deepEqual(panes, ['timeline', 'tops', 'grid', 'q']);
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.waitForSelector('#fields [role=treeitem]');
  assert.equal(await page.locator('#row-1[aria-selected=true]').count(), 1);
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('#packet').count(), 0);
  await page.keyboard.press('2');
  await page.waitForSelector('.of-flows .vr');
  await page.keyboard.press('1');
  await page.keyboard.press('b');
  assert.equal(times(page).get('by'), 'bytes');
  await page.keyboard.press('?');
  await page.waitForSelector('[role=dialog][aria-label=Keys]');
  await picture(page, 'keys');
  await page.keyboard.press('Escape');
  await page.keyboard.press('Control+k');
  await page.waitForFunction(() => document.activeElement?.closest('[role=dialog]') !== null);
  await page.keyboard.type('recor');
  await picture(page, 'palette');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:has-text("Recorder")');
  await page.keyboard.press('g');
  await page.keyboard.press('x');
  await page.waitForSelector('#sentence');
  assert.match(await page.textContent('#sentence'), /columns alone found/);
  await picture(page, 'explain');
}));

test('a role that may not extract', options, async () => {
  const state = here.path('locked');
  const roles = '[role.dns]\nmay = "search"\nfilter = "udp port 53"\n';
  const add = (name, role) => tapdex('token', 'add', '--state', state, '--name', name, '--role', role).trim();
  const [search, admin] = [add('soc', 'search'), add('boss', 'admin')];
  writeFileSync(`${state}/roles.toml`, roles, { mode: 0o600 });
  const dns = add('dns', 'dns');
  const locked = await serve(here.path('archive'), state, '--listen', '127.0.0.1:0');
  try {
    const enter = async (page, token) => {
      await page.waitForSelector('#token');
      await page.fill('#token', token);
      await page.keyboard.press('Enter');
    };
    await on('/explore?q=tcp', async (page) => {
      await picture(page, 'locked');
      await enter(page, 'tapdex_no_no');
      await page.waitForFunction(() => /does not let/.test(document.body.textContent));
      await enter(page, search);
      assert.equal(await count(page), cli('tcp'));
      assert.equal(await page.getAttribute('#download', 'aria-disabled'), 'true');
      assert.match(await page.textContent('#role'), /Your role is search: you see headers and counts/);
      assert.deepEqual(await page.locator('nav a').allTextContents(), ['Explore', 'Recorder', 'Explain']);
      await page.click('.vr[data-id] >> nth=2');
      await page.waitForSelector('#fields [data-field="ip.src"], #fields [data-field="ipv6.src"]');
      assert.match(await page.textContent('#packet'), /Bytes are not shown/);
      assert.equal(await page.locator('#bytes').count(), 0);
      await picture(page, 'role-search');
    }, { url: locked.url });
    await on('/explore', async (page) => {
      await enter(page, dns);
      assert.equal(await count(page), cli('udp port 53'));
      assert.match(await page.textContent('.forced'), /udp port 53/);
      assert.deepEqual(await page.locator('nav a').allTextContents(), ['Explore']);
      await picture(page, 'role-filter');
    }, { url: locked.url });
    await on('/explore?q=icmp', async (page) => {
      await enter(page, admin);
      await count(page);
      // With a token, too, a download is the capture.
      const [file] = await Promise.all([page.waitForEvent('download'), page.click('#download')]);
      await file.saveAs(here.path('icmp.pcapng'));
      const info = tapdex('extract', '-r', here.path('archive'), 'icmp', '-w', here.path('icmp2.pcapng'));
      assert.equal(info, '');
      assert.equal(readFileSync(here.path('icmp.pcapng')).length > 1000, true);
      await page.keyboard.press('g');
      await page.keyboard.press('a');
      await page.waitForSelector('#audit tbody tr');
      assert.match(await page.textContent('#chain'), /The chain holds/);
      assert.match(await page.textContent('#audit'), /extract.*done.*icmp/s);
      await picture(page, 'audit');
    }, { url: locked.url });
  } finally {
    await locked.stop();
  }
});

test('a server that goes away and comes back', options, async () => {
  const port = 20_000 + (process.pid % 20_000);
  const args = ['--listen', `127.0.0.1:${port}`];
  let own = await serve(here.path('archive'), here.path('away'), ...args);
  await on('/explore?q=udp', async (page) => {
    assert.equal(await count(page), cli('udp'));
    await page.waitForSelector('.vr[data-id]');
    own.child.kill('SIGKILL');
    await page.waitForSelector('#strip [role=alert]', { timeout: 15_000 });
    assert.match(await page.textContent('#strip'), /The server does not answer.*Trying again in \d+ s/);
    // What is there stays, and what is asked meanwhile is asked when it is back.
    assert.ok(await page.locator('.vr[data-id]').count() > 5);
    await picture(page, 'server-away');
    await page.fill('#q', 'icmp');
    await page.waitForTimeout(500);
    own = await serve(here.path('archive'), here.path('away'), ...args);
    await page.waitForFunction(() => document.querySelector('#strip [role=alert]') === null, undefined, { timeout: 40_000 });
    await page.waitForFunction((n) => document.querySelector('#count').textContent.replaceAll(',', '') === n, String(cli('icmp')));
  }, { url: own.url });
  await own.stop();
});

test('live: what is recorded comes', options, async () => {
  const archive = here.path('live');
  const { spawn } = await import('node:child_process');
  const recorder = spawn(tapdexPath, ['record', '-i', '-', '-w', archive, '--quiet', '--no-sandbox'],
    { stdio: ['pipe', 'ignore', 'inherit'] });
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  recorder.stdin.write(capture([]));
  let sent = 0;
  const timer = setInterval(() => {
    for (let n = 0; n < 20; n += 1) {
      recorder.stdin.write(capture([frame({ n: sent, time: BigInt(Date.now()) * 1_000_000n })], false));
      sent += 1;
    }
  }, 100);
  try {
    await wait(2500);
    const own = await serve(archive, here.path('live-state'), '--listen', '127.0.0.1:0');
    await on('/explore?from=-15m', async (page) => {
      const before = await count(page);
      assert.ok(before > 0);
      await page.waitForFunction(() => document.querySelector('#live').getAttribute('aria-disabled') !== 'true');
      assert.match(await page.textContent('#strip'), /Recording/);
      await page.click('#live');
      await page.waitForFunction((n) => Number(document.querySelector('#count').textContent.replaceAll(',', '')) > n + 40, before,
        { timeout: 20_000 });
      assert.equal(times(page).get('live'), '1');
      assert.match(await page.textContent('#times'), /following/);
      await page.waitForFunction(() => /\d+ new/.test(document.querySelector('.foot').textContent));
      await picture(page, 'live');
      // The newest come at the end; the list stays where it was.
      assert.equal(await page.locator('#row-0[data-id]').count(), 1);
      const rows = () => page.getAttribute('.vlist', 'aria-rowcount').then(Number);
      const many = await rows();
      await page.click('.foot .link');
      await page.waitForFunction((n) => Number(document.querySelector('.vlist').getAttribute('aria-rowcount')) > n, many);
      await page.keyboard.press('End');
      await page.waitForFunction(() => document.querySelector('.vr[aria-selected=true]')?.dataset.id !== undefined);
      // A zoom pauses it.
      await page.keyboard.press('l');
      assert.equal(times(page).get('live'), null);
      await page.keyboard.press('g');
      await page.keyboard.press('r');
      await page.waitForSelector('.stages');
      await page.waitForTimeout(2500);
      assert.match(await page.textContent('.stages'), /Kernel ring/);
      await picture(page, 'recorder');
    }, { url: own.url });
    await own.stop();
  } finally {
    clearInterval(timer);
    recorder.kill('SIGINT');
    await new Promise((done) => recorder.on('exit', done));
  }
});

test('several places answer as one', options, async () => {
  const front = await start(['serve', '-r', here.path('archive'), '-r', server.direct, '-r', 'http://127.0.0.1:9',
    '--state', here.path('front'), '--quiet', '--no-sandbox', '--listen', '127.0.0.1:0']);
  try {
    await on('/explore?q=icmp', async (page) => {
      assert.equal(await count(page), 2 * cli('icmp'));
      assert.match(await page.textContent('#incomplete'), /127\.0\.0\.1:9.*cannot connect/);
      await page.waitForSelector('.vr[data-id], .vr');
      await page.keyboard.press('g');
      await page.keyboard.press('n');
      await page.waitForSelector('#nodes tbody tr');
      assert.equal(await page.locator('#nodes tbody tr').count(), 3);
      assert.equal(await page.locator('#nodes .bad').count(), 1);
      await picture(page, 'nodes');
    }, { url: front.url });
  } finally {
    await front.stop();
  }
});

test('what is missing is said, and drawn', options, async () => {
  const archive = here.path('lossy');
  tapdex('index', '--quiet', here.path('a.pcap'), '-o', archive);
  const at = (seconds) => 1_767_600_000_000_000_000n + BigInt(seconds) * 1_000_000_000n;
  writeFileSync(`${archive}/missing.toml`, `version = 1
[[lost]]
from_ns = ${at(60)}
to_ns = ${at(80)}
packets = 48210
[[outages]]
from_ns = ${at(200)}
to_ns = ${at(230)}
source = "eth0"
`);
  const own = await serve(archive, here.path('lossy-state'), '--listen', '127.0.0.1:0');
  try {
    await on('/explore?q=udp', async (page) => {
      await count(page);
      assert.match(await page.textContent('#incomplete'),
        /Not complete for 50 s of 6 min \d+ s\..*48,210 packets lost while recording.*eth0 was gone/);
      await page.waitForFunction(() => !document.querySelector('.time').classList.contains('busy'));
      await page.waitForTimeout(300);
      // The colours of both patterns are where these times are, and nowhere else.
      const drawn = (from, to, name) => page.evaluate(([a, b, colour]) => {
        const canvas = document.querySelector('#timeline canvas');
        const box = document.querySelector('#timeline .u-over').getBoundingClientRect();
        const left = box.left - canvas.getBoundingClientRect().left;
        const [first, last] = [a, b].map((share) => Math.round((left + share * box.width) * devicePixelRatio));
        const { data } = canvas.getContext('2d').getImageData(first, 6, Math.max(1, last - first), 80);
        const wanted = getComputedStyle(document.documentElement).getPropertyValue(`--${colour}`).trim();
        const rgb = [1, 3, 5].map((n) => Number.parseInt(wanted.slice(n, n + 2), 16));
        let many = 0;
        for (let n = 0; n < data.length; n += 4) {
          if (rgb.every((value, k) => Math.abs(data[n + k] - value) < 12)) many += 1;
        }
        return many;
      }, [from, to, name]);
      const all = 399;
      assert.ok(await drawn(62 / all, 78 / all, 'loss-fill') > 300);
      assert.equal(await drawn(120 / all, 190 / all, 'loss-fill'), 0);
      assert.ok(await drawn(202 / all, 228 / all, 'ctl') > 100);
      await picture(page, 'missing');
      // In the list, it is at its place in time.
      await page.evaluate(() => window.scrollTo(0, 0));
      await page.click('.vlist');
      const before = cli('udp', '--to', '2026-01-05T08:01:00Z');
      await page.evaluate((n) => { document.querySelector('.vlist').scrollTop = 22 * (n - 5); }, before);
      await page.waitForSelector('.vr.brk');
      assert.match(await page.textContent('.vr.brk'), /48,210 lost before/);
      assert.equal(await page.getAttribute('.vr.brk', 'id'), `row-${before}`);
      await page.click('#incomplete .btn >> nth=0');
      await page.waitForTimeout(200);
      await count(page);
      const [from, to] = [times(page).get('from'), times(page).get('to')].map(Date.parse);
      assert.ok(from < Number(at(60) / 1_000_000n) && to > Number(at(80) / 1_000_000n) && to - from < 60_000);
      await page.keyboard.press('n');
      await page.waitForTimeout(200);
      assert.ok(Date.parse(times(page).get('to')) > Number(at(230) / 1_000_000n));
      await page.keyboard.press('g');
      await page.keyboard.press('r');
      await page.waitForSelector('.ev');
      assert.match(await page.textContent('.sheet'), /48,210 packets lost/);
    }, { url: own.url });
  } finally {
    await own.stop();
  }
});

test('hostile text in packets stays text', options, async () => {
  const evil = '<img src=x onerror="window.hit=1"><script>window.hit=1</script>"\'&{{7*7}}';
  const frames = [0, 1, 2].map((n) => frame({ n, time: 1_767_600_000_000_000_000n + BigInt(n), payload: evil }));
  writeFileSync(here.path("<b onclick='hit=1'>x.pcapng"), capture(frames, true, evil));
  tapdex('index', '--quiet', here.path("<b onclick='hit=1'>x.pcapng"), '-o', here.path('evil'));
  const own = await serve(here.path('evil'), here.path('evil-state'), '--listen', '127.0.0.1:0', '--name', evil);
  try {
    await on(`/explore?q=${encodeURIComponent('')}&tops=iface,src`, async (page) => {
      assert.equal(await count(page), 3);
      await page.waitForSelector('.panel .tv');
      assert.match(await page.textContent('#tops'), /<img src=x/);
      await page.click('.vr[data-id] >> nth=1');
      await page.waitForSelector('#bytes');
      assert.match(await page.textContent('.det-h'), /<b onclick/);
      assert.match(await page.textContent('#bytes'), /<·?i?m?g?/);
      await page.fill('#q', evil);
      await page.waitForSelector('.ferr .msg');
      await page.waitForTimeout(300);
      assert.equal(await page.evaluate(() => window.hit), undefined);
      assert.equal(await page.locator('#app img, #app script').count(), 0);
      await picture(page, 'hostile');
    }, { url: own.url });
    // An address can be hostile as well.
    await on(`/explore?q=${encodeURIComponent(evil)}&p=${encodeURIComponent(evil)}&stack=${encodeURIComponent(evil)}&tops=${encodeURIComponent(evil)}&f=constructor&at=__proto__`, async (page) => {
      await page.waitForSelector('.ferr .msg');
      assert.equal(await page.evaluate(() => window.hit), undefined);
    }, { url: own.url });
  } finally {
    await own.stop();
  }
});

test('a policy without unsafe words, and nothing from elsewhere', options, async () => {
  const reply = await fetch(server.url);
  const policy = reply.headers.get('content-security-policy');
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe|\*|https?:/);
  const html = await reply.text();
  assert.doesNotMatch(html, /https?:\/\/|style=|<script>/);
  await on('/explore', async (page) => {
    await count(page);
    // What a script in the page would be refused.
    const refused = await page.evaluate(() => new Promise((done) => {
      document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
      document.body.append(Object.assign(document.createElement('img'), { src: 'http://192.0.2.1/x.png' }));
      setTimeout(() => done('nothing was refused'), 3000);
    }));
    assert.equal(refused, 'img-src');
    page.problems.length = 0;
    page.asked.delete('http://192.0.2.1');
  });
});

test('a job makes what is large', options, () => on('/jobs', async (page) => {
  const job = await (await fetch(new URL('/api/v1/jobs', server.url), {
    method: 'POST', body: JSON.stringify({ q: 'icmp', reason: 'case 7' }),
  })).json();
  assert.ok(job.id);
  await page.waitForFunction(() => /done/.test(document.querySelector('#jobs')?.textContent ?? ''), undefined, { timeout: 20_000 });
  assert.match(await page.textContent('#jobs'), /icmp.*case 7/s);
  await picture(page, 'jobs');
  const [file] = await Promise.all([page.waitForEvent('download'), page.click('#jobs .btn:has-text("Download")')]);
  await file.saveAs(here.path('job.pcapng'));
  await page.click('#jobs .btn:has-text("Delete")');
  await page.waitForFunction(() => !/case 7/.test(document.querySelector('#jobs').textContent));
}));

test('a demo: scan, flood and exfiltration', options, async () => {
  const demo = await start(['demo', '--serve', '--packets', '200000', '--listen', '127.0.0.1:0']);
  try {
    await on('/', async (page) => {
      await page.waitForSelector('#first');
      await page.waitForFunction(() => [...document.querySelectorAll('.q .cn b')].every((b) => b.textContent !== ''));
      assert.match(await page.textContent('#first'), /a scan, a flood and an exfiltration/);
      await picture(page, 'demo');
      await page.keyboard.press('1');
      assert.match(filter(page), /tcp-syn/);
      await count(page);
      await page.waitForFunction(() => !document.querySelector('.time').classList.contains('busy')
        && !document.querySelector('.tops').classList.contains('stale')
        && document.querySelector('.panel[aria-label=Sources] .tv') !== null);
      assert.equal(await page.getAttribute('.panel[aria-label=Sources] .tv', 'data-value'), '10.1.66.6');
      await picture(page, 'demo-scan');
    }, { url: demo.url });
  } finally {
    await demo.stop();
  }
});

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
for (const colorScheme of ['light', 'dark']) {
  for (const [view, ready, act] of [
    ['/explore?q=tcp', '.vr[data-id]'], ['/explore?q=tcp&tab=flows', '.of-flows .vr'],
    ['/explore?q=net+10.1.0.0/16+and+hots+10.1.4.23', '.ferr .msg'], ['/recorder', '.lines'],
    ['/explain?q=tcp+port+443', '#sentence'], ['/jobs', '#jobs'], ['/audit', '#chain'], ['/', '#first'],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.keyboard.press('?')],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.keyboard.press('Control+k')],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.keyboard.press('t')],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.keyboard.press('Shift+C')],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.keyboard.press('d')],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.click('.tl-h .link')],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.click('.vr[data-id] >> nth=1', { button: 'right' })],
    ['/explore?q=udp', '.vr[data-id]', (page) => page.fill('#q', 'po')],
  ]) {
    test(`screen readers: ${view} ${act ?? ''} ${colorScheme}`, options, () => on(view, async (page) => {
      await page.waitForSelector(ready);
      if (view === '/explore?q=tcp') {
        await page.click('.vr[data-id] >> nth=2');
        await page.waitForSelector('#fields [role=treeitem]');
      }
      await act?.(page);
      await page.waitForTimeout(400);
      // Through the debugger, which the policy does not bind.
      await page.evaluate(axe);
      const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
      const bad = found.violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      const told = bad.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map(({ html, failureSummary }) => `${html} ${failureSummary}`).join(' | ')}`);
      assert.deepEqual(told, []);
    }, { colorScheme, bypassCSP: true }));
  }
}

test('smaller windows keep what matters', options, async () => {
  for (const [width, height] of [[1024, 700], [760, 900], [390, 800], [720, 450]]) {
    await on('/explore?q=tcp', async (page) => {
      assert.equal(await count(page), cli('tcp'));
      await page.waitForSelector('.vr[data-id]');
      await page.click('.vr[data-id] >> nth=2');
      await page.waitForSelector('#fields [role=treeitem]');
      // Nothing is wider than the window.
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${wide} pixels too wide at ${width}`);
      await picture(page, `window-${width}x${height}`);
    }, { viewport: { width, height } });
  }
});
