import { useState } from 'preact/hooks';
import { hasToken, locked, setToken } from '../net/server';
import { askAgain } from '../state/answers';
import { refresh } from '../state/session';

/** The door: a token opens it, for as long as the tab is open. */
export function SignIn() {
  const [token, setText] = useState('');
  const enter = async (event: Event): Promise<void> => {
    event.preventDefault();
    setToken(token);
    await refresh();
    if (!locked.peek()) askAgain();
  };
  return (
    <main class="page sheet">
      <form class="card door" onSubmit={(event) => void enter(event)}>
        <h1>This archive is locked</h1>
        <p>{hasToken() ? 'The server does not let this token in.' : 'A token opens it.'}{' '}
          It stays in this tab, until that is closed.</p>
        <label class="field">Token
          <input type="password" autocomplete="off" value={token} id="token" autofocus
            onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <p class="dim">An admin makes one: <span class="mono">tapdex token add --name NAME --role search</span></p>
        <div class="row"><span class="grow" /><button class="btn pri">Open</button></div>
      </form>
    </main>
  );
}
