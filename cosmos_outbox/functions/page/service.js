// Every call goes to the service that gave the page, with the key of this tab, and ends: with an answer or a Refused.

/** The folder of the page: the calls are beside it, whatever the prefix of the routes is. */
const BASE = location.pathname.replace(/\/+$/, "").replace(/[^/]*$/, "");
const KEY_NAME = "operations-key";
const LOOK_SECONDS = 10;
const ACT_SECONDS = 120;

const key = {
  get: () => sessionStorage.getItem(KEY_NAME) ?? "",
  set: (value) => sessionStorage.setItem(KEY_NAME, value),
  forget: () => sessionStorage.removeItem(KEY_NAME),
  /** A header holds visible ASCII; no key of the platform has anything else. */
  canBe: (value) => /^[\x21-\x7e]+$/.test(value),
};

/** The service's clock: ages are by it, since the clock of this machine may be wrong. */
const serviceClock = {
  ahead: 0,
  now: () => Date.now() + serviceClock.ahead,
  secondsSince: (text) => (text ? (serviceClock.now() - Date.parse(text)) / 1000 : null),
};

/** The service has refused a call, or has not answered it (`status` 0). */
class Refused extends Error {
  constructor(status, text, { retryAfter = 0, used = null } = {}) {
    super(text);
    this.status = status;
    this.retryAfter = retryAfter;
    this.used = used; // the key that the call had
  }
  /** The key of this tab is refused. A late answer may refuse the one before it: that says nothing of the key now. */
  get wantsKey() {
    return this.status === 401 && this.used === key.get();
  }
  get passes() {
    return this.status === 429 || this.status === 503;
  }
}

/** The document that the service answers with; null where the answer has no body. Throws Refused. */
async function call(path, { method = "GET", body = null, stop = null } = {}) {
  const headers = {};
  const used = key.get();
  if (used) headers["x-functions-key"] = used;
  if (body) headers["Content-Type"] = "application/json";
  const ends = AbortSignal.timeout(1000 * (method === "GET" ? LOOK_SECONDS : ACT_SECONDS));
  const signal = stop ? AbortSignal.any([ends, stop]) : ends;
  let answer, text;
  try {
    answer = await fetch(BASE + path, {
      method, headers, signal, body: body && JSON.stringify(body), cache: "no-store", credentials: "same-origin", redirect: "error",
    });
    text = await answer.text();
  } catch (error) {
    if (stop?.aborted) throw new Refused(0, "stopped");
    throw new Refused(0, error.name === "TimeoutError" ? "the service did not answer in time" : "the service cannot be reached");
  }
  const date = Date.parse(answer.headers.get("Date") ?? "");
  if (date) serviceClock.ahead = date - Date.now();
  const found = parsed(text);
  if (answer.ok) return found;
  throw new Refused(answer.status, found?.detail ?? `the service answered ${answer.status}`, {
    retryAfter: Number(answer.headers.get("Retry-After")) || 0, used,
  });
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

const query = (parameters) =>
  new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined)).toString();

const wait = (seconds, stop) =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    stop?.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
