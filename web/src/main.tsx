import { render } from 'preact';
import { watchPacket } from './explore/packet';
import { App } from './frame/App';
import { listenToKeys } from './frame/keys';
import { listen } from './state/answers';
import { followTimes } from './state/live';
import { watch } from './state/session';
import { apply } from './state/theme';
import { effect } from '@preact/signals';
import { view } from './state/view';

apply();
watch();
listen();
followTimes();
watchPacket();
listenToKeys();
effect(() => {
  const { page, q } = view.value;
  document.title = `${q === '' ? page[0]?.toUpperCase() + page.slice(1) : q} - tapdex`;
});
const root = document.getElementById('app');
if (root) render(<App />, root);
