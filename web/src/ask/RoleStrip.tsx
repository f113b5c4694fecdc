import { copy } from '../parts/announce';
import { Icon } from '../parts/Icon';
import { mayExtract, status } from '../state/session';

/** What a role sees, if that is not everything. */
export function RoleStrip() {
  const session = status.value;
  if (session === null || (mayExtract.value && !session.limited)) return null;
  const { role, filters, from, to } = session;
  const part = [
    filters.length > 0 ? `of ${filters.join(' or ')}` : '',
    from !== null ? `from ${from}` : '',
    to !== null ? `to ${to}` : '',
  ].filter((text) => text !== '').join(' ');
  const sees = mayExtract.value ? 'packets' : 'headers and counts';
  const text = `Your role is ${role}: you see ${sees}${part === '' ? '' : ` ${part}`}.`;
  return (
    <div class="note info" id="role">
      <Icon name="lock" />
      <span class="tx">
        {text}{mayExtract.value ? '' : ' Taking packets out needs the role extract.'}
      </span>
      {!mayExtract.value && (
        <button class="btn sm" onClick={() => void copy(
          `I need the role extract on ${location.origin} for: ${location.href}`, 'Request')}>
          Copy a request
        </button>
      )}
    </div>
  );
}
