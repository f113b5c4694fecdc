import { tops } from '../state/answers';
import { fields } from '../state/session';
import { TOPS, change, view } from '../state/view';
import { TopPanel } from './TopPanel';

/** The most frequent values of some fields; a click makes a term of one. */
export function Tops() {
  const { tops: names, by } = view.value;
  const { value, busy } = tops.value;
  const all = fields.value.filter(({ field }) => !names.includes(field));
  return (
    <section class={`tops${busy ? ' stale' : ''}`} id="tops" aria-label="Top values" tabIndex={-1}>
      <div class="tp-h">
        Top values, by {by}<span class="grow" />
        <select class="btn sm" aria-label="Add a field" value="" onChange={(event) => {
          const field = event.currentTarget.value;
          if (field !== '') change({ tops: [...names, field] }, 'push');
          event.currentTarget.value = '';
        }}>
          <option value="">+ field</option>
          {all.map(({ field, about }) => <option value={field} title={about}>{field}</option>)}
        </select>
      </div>
      {names.map((field) => (
        <TopPanel
          field={field} values={value?.top.find((one) => one.field === field)} busy={busy}
          remove={TOPS.includes(field) ? undefined
            : () => change({ tops: names.filter((name) => name !== field) }, 'push')}
        />
      ))}
    </section>
  );
}
