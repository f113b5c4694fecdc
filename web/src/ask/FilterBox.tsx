import { signal, useSignalEffect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Icon } from '../parts/Icon';
import { remember, step } from '../state/history';
import { status } from '../state/session';
import { count, wrong } from '../state/answers';
import { change, reask, view } from '../state/view';
import { characters } from '../text/utf8';
import { pieces } from './words';
import { Choices } from './Choices';
import { type Choice, choices, close, look } from './completion';
import { showError } from './FilterError';

/** Where the box starts, in pixels from the left of the question; both have the same padding. */
export const inset = signal(0);

/** The filter: a text field with coloured words behind it. */
export function FilterBox() {
  const input = useRef<HTMLInputElement>(null);
  const colours = useRef<HTMLDivElement>(null);
  const typing = useRef(false);
  const { q } = view.value;
  const isWrong = wrong.value !== null && showError.value;
  const forced = status.value?.filters ?? [];
  const open = choices.value;

  // The text field is the truth while somebody types; otherwise the address is.
  useSignalEffect(() => {
    const text = view.value.q;
    if (input.current && input.current.value !== text) input.current.value = text;
  });
  useEffect(() => {
    if (input.current && colours.current) colours.current.scrollLeft = input.current.scrollLeft;
    const box = input.current?.getBoundingClientRect();
    const ask = input.current?.closest('.ask')?.getBoundingClientRect();
    if (box && ask) inset.value = box.left - ask.left;
  });

  const typed = (): void => {
    const field = input.current;
    if (!field) return;
    reask({ q: field.value, live: view.peek().live }, typing.current ? 'replace' : 'push');
    typing.current = true;
    void look(field.value, field.selectionStart ?? field.value.length, false);
  };
  const put = (text: string, caret: number): void => {
    const field = input.current;
    if (!field) return;
    field.value = text;
    field.setSelectionRange(caret, caret);
    typed();
  };
  const take = (choice: Choice): void => {
    const field = input.current;
    if (!field || open === null) return;
    const rest = field.value.slice(open.end);
    const text = `${field.value.slice(0, open.start)}${choice.text}${rest === '' ? ' ' : ''}`;
    put(text + rest, text.length);
    field.focus();
  };
  const keys = (event: KeyboardEvent): void => {
    const field = input.current;
    if (!field) return;
    const move = (by: number) => {
      if (open === null) return;
      const chosen = (open.chosen + by + open.list.length) % open.list.length;
      choices.value = { ...open, chosen };
      event.preventDefault();
    };
    if (event.key === ' ' && event.ctrlKey) {
      event.preventDefault();
      void look(field.value, field.selectionStart ?? 0, true);
    } else if (open !== null && event.key === 'ArrowDown') move(1);
    else if (open !== null && event.key === 'ArrowUp') move(-1);
    else if (open !== null && event.key === 'Tab' && !event.shiftKey) {
      const choice = open.list[open.chosen];
      if (choice) take(choice);
      event.preventDefault();
    } else if (event.key === 'Escape') {
      if (open !== null) close();
      else field.blur();
      event.stopPropagation();
    } else if (event.key === 'Enter') {
      close();
      typing.current = false;
      remember(field.value);
      showError.value = true;
    } else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      const text = step(event.key === 'ArrowUp' ? -1 : 1, field.value);
      if (text !== undefined) put(text, text.length);
      close();
      event.preventDefault();
    }
  };

  return (
    <div class={`fbox${isWrong ? ' bad' : ''}`}>
      {forced.length > 0 && (
        <span class="forced" title="Added by your role; it cannot be removed">
          <Icon name="lock" />{forced.join(' or ')} <b>and</b>
        </span>
      )}
      <div class="ftext">
        <div class="hl" ref={colours} aria-hidden="true">
          {pieces(q).map(({ text, kind, at }) => {
            const error = isWrong ? wrong.value : null;
            const from = characters(q, error?.offset ?? -1);
            const to = characters(q, (error?.offset ?? -1) + (error?.length ?? 0));
            const bad = error?.offset !== undefined && at < to && at + text.length > from;
            return <span class={`${kind}${bad ? ' er' : ''}`}>{text}</span>;
          })}
        </div>
        <input
          ref={input} id="q" spellcheck={false} autocomplete="off" autocapitalize="off"
          role="combobox" aria-label="Filter" aria-autocomplete="list"
          aria-expanded={open !== null} aria-controls="choices" aria-invalid={isWrong}
          aria-describedby="ferr"
          aria-activedescendant={open === null ? undefined : `choice-${open.chosen}`}
          placeholder="every packet: type a filter, as host 10.1.2.3 and tcp port 443"
          defaultValue={q} onInput={typed} onKeyDown={keys}
          onScroll={() => {
            if (input.current && colours.current) colours.current.scrollLeft = input.current.scrollLeft;
          }}
          onBlur={() => { close(); typing.current = false; }}
        />
      </div>
      <span class="end">
        {count.value.busy && <i class="spin" aria-hidden="true" />}
        {q !== '' && (
          <button title="Clear" aria-label="Clear the filter" onClick={() => {
            change({ q: '' }, 'push');
            input.current?.focus();
          }}><Icon name="x" /></button>
        )}
        <kbd aria-hidden="true">/</kbd>
      </span>
      {open !== null && <Choices choices={open} take={take} />}
    </div>
  );
}
