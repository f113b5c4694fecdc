/** Requests to the server that the page is from, and to nobody else. */

import { signal } from '@preact/signals';
import { keep, kept } from './kept';
import { failed, heard } from './away';

export type Params = Record<string, string | number | boolean | undefined>;

/** An answer that says why there is no answer. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    text: string,
    /** Where the filter is wrong, in bytes. */
    readonly offset?: number,
    readonly length?: number,
    readonly hint?: string,
    /** What to write in its place. */
    readonly fix?: string,
  ) {
    super(text);
  }
}

/** The server wants a token, or refuses the one it got. */
export const locked = signal(false);

const TOKEN = 'token';

/** The token goes with the tab: it is in no cookie, and no address. */
export function setToken(token: string): void {
  sessionStorage.setItem(TOKEN, token.trim());
  locked.value = false;
}

export function hasToken(): boolean {
  return sessionStorage.getItem(TOKEN) !== null;
}

function headers(): HeadersInit {
  const token = sessionStorage.getItem(TOKEN);
  return token === null ? {} : { Authorization: `Bearer ${token}` };
}

export function address(path: string, params: Params = {}): string {
  const pairs = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== '' && value !== false) pairs.set(name, String(value));
  }
  const query = pairs.toString();
  return query === '' ? path : `${path}?${query}`;
}

/** Sends a request; throws `Refused`, `AbortError`, or `TypeError` if nobody answers. */
export async function send(to: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(to, { ...init, headers: { ...headers(), ...init.headers } });
  } catch (error) {
    if (error instanceof TypeError) failed();
    throw error;
  }
  heard();
  if (response.ok) return response;
  if (response.status === 401) locked.value = true;
  const body: unknown = await response.json().catch(() => ({}));
  const told = body as Record<string, unknown>;
  const number = (value: unknown) => (typeof value === 'number' ? value : undefined);
  const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
  throw new Refused(
    response.status,
    text(told.error) ?? `the server answers ${response.status}`,
    number(told.offset),
    number(told.length),
    text(told.hint),
    text(told.fix),
  );
}

/** Asks for JSON. Answers about times that do not move are kept for Back. */
export async function ask<T>(path: string, params: Params, abort?: AbortSignal): Promise<T> {
  const to = address(path, params);
  const same = kept<T>(to);
  if (same !== undefined) return same;
  const response = await send(to, { signal: abort ?? null });
  const text = await response.text();
  const value = JSON.parse(text) as T;
  if (!isMoving(params)) keep(to, value, text.length);
  return value;
}

/** Whether the same question may have another answer soon. */
function isMoving(params: Params): boolean {
  const relative = (value: unknown) => typeof value === 'string' && !/^\d{4}-/.test(value);
  return params.to === undefined || relative(params.from) || relative(params.to);
}

export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === 'AbortError';
}
