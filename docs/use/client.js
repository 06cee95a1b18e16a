const api = "http://127.0.0.1:7071", key = "a function key";

// After a lost answer, 429, 502, 503 and 504 the same request is sent again, with the same key: it is carried out once.
async function send(method, path, body, once = crypto.randomUUID()) {
  const headers = { "x-functions-key": key, "Content-Type": "application/json" };
  headers[method === "GET" ? "Cache-Control" : "Idempotency-Key"] = method === "GET" ? "no-cache" : once;
  for (let attempt = 1; ; attempt++) {
    const sent = { method, headers, body: JSON.stringify(body), signal: AbortSignal.timeout(20_000) };
    const [answer, text] = await fetch(api + path, sent)
      .then(async (answer) => [answer, await answer.text()])
      .catch((lost) => [lost, ""]);
    if (answer.ok) return text && JSON.parse(text);
    if (attempt === 5 || ![undefined, 429, 502, 503, 504].includes(answer.status)) {
      throw answer.status && text ? Object.assign(new Error(), JSON.parse(text)) : answer;
    }
    const seconds = Number(answer.headers?.get("Retry-After")) || attempt;
    await new Promise((wake) => setTimeout(wake, 1000 * seconds));
  }
}

export const create = (contact, once) => send("POST", "/api/contacts", contact, once); // keep once with the form
export const read = (id) => send("GET", `/api/contacts/${id}`);

// mine: what a person has edited since base was read. The fields that others have changed too are in both.
export async function change(base, mine) {
  const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
  for (;;) {
    try {
      await send("PATCH", `/api/contacts/${base.id}`, { ...mine, etag: base.etag });
      return { newest: await read(base.id), both: [] };
    } catch (problem) {
      if (![409, 412].includes(problem.status)) throw problem;
    }
    const newest = await read(base.id);
    const both = Object.keys(mine).filter((name) => !same(newest[name], base[name]) && !same(newest[name], mine[name]));
    if (both.length) return { newest, both }; // nothing is stored: ask
    base = newest;
  }
}

export async function* all(path = "/api/contacts?pageSize=100") {
  for (let page; path; path = page.nextLink) {
    page = await send("GET", path);
    yield* page.items;
  }
}

// What has changed, and the next since. Something may come again: keep the higher sequence.
export async function changed(since) {
  const items = [];
  let next, path = `/api/contacts?sort=changed&changedSince=${encodeURIComponent(since)}`;
  for (let page; path; path = page.nextLink) {
    page = await send("GET", path);
    next ??= page.asOf;
    items.push(...page.items);
  }
  return { items, since: next };
}
