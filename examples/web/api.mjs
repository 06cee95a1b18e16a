// Every call goes to the one API that the page names, and ends: with an answer, or with a Refused that a person can read.

const BASE = document.querySelector('meta[name="api"]').content;
const KEY = "contacts-key";
const SECONDS = 20;

/** The function key of this tab. Each visitor of a page can read its key: this one is typed, and is in no file. */
export const key = {
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** The API has refused a call (`problem` is its answer, RFC 9457), or has not answered it (`status` 0). */
export class Refused extends Error {
  constructor(status, problem, retryAfter = 0) {
    super(problem?.detail ?? problem?.title ?? (status ? `The service answered ${status}.` : "The service cannot be reached."));
    this.status = status;
    this.errors = problem?.errors ?? [];
    this.retryAfter = retryAfter;
  }
  /** Whether the change may be stored all the same: then the same request, with the same key, is sent again. */
  get isOpen() {
    return [0, 429, 500, 502, 503, 504].includes(this.status);
  }
}

/** `{ body, etag }` of an answer. Throws Refused. */
export async function call(path, { method = "GET", headers = {}, body } = {}) {
  const sent = { ...headers };
  const known = sessionStorage.getItem(KEY);
  if (known) sent["x-functions-key"] = known;
  if (body) sent["Content-Type"] = method === "PATCH" ? "application/merge-patch+json" : "application/json";
  let answer, text;
  try {
    answer = await fetch(BASE + path, {
      method, headers: sent, body: body && JSON.stringify(body), signal: AbortSignal.timeout(1000 * SECONDS),
      cache: "no-store", credentials: "omit", redirect: "error",
    });
    text = await answer.text();
  } catch {
    throw new Refused(0);
  }
  const found = parsed(text);
  if (!answer.ok) throw new Refused(answer.status, found, Number(answer.headers.get("Retry-After")) || 0);
  return { body: found, etag: answer.headers.get("ETag") };
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

/**
 * A change with an Idempotency-Key: as long as its outcome is open, the same change again has the same key, and is made
 * once. With a version (`etag`) it is made over that version alone.
 */
export class Change {
  #key = null;
  #of = null;

  async send(path, method, { etag, body } = {}) {
    const of = JSON.stringify([path, method, etag, body]);
    if (this.#of !== of) [this.#of, this.#key] = [of, crypto.randomUUID()];
    const headers = { "Idempotency-Key": this.#key, ...(etag && { "If-Match": etag }) };
    try {
      const answer = await call(path, { method, headers, body });
      this.#of = null;
      return answer;
    } catch (error) {
      if (!(error instanceof Refused && error.isOpen)) this.#of = null;
      throw error;
    }
  }
}

export const directory = (parameters) => call(`directory?${new URLSearchParams(parameters)}`);
/** The newest state: a replica that lags would show the version that was refused. */
export const newest = (id) => call(`contacts/${id}`, { headers: { "Cache-Control": "no-cache" } });
