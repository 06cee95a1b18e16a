// Drives docs/use/client.js, which the test writes beside this file: node api_client.mjs ADDRESS
//
// Its answers are lost and refused on the way, after the service has given them. What was seen is printed as JSON.
import { all, change, changed, create, read } from "./client.mjs";

const address = process.argv[2];
const through = globalThis.fetch;
const seen = {}, waits = [], sent = [];
let faults = [];

globalThis.wait = (wake, milliseconds) => { // the client's setTimeout
  waits.push(milliseconds);
  setTimeout(wake, 1);
};
globalThis.fetch = async (url, options) => {
  const fault = faults.shift();
  sent.push(options.headers["Idempotency-Key"]);
  if (fault === "busy") return new Response("{}", { status: 503, headers: { "Retry-After": "7" } });
  const answer = await through(url, options);
  if (fault !== "lost") return answer;
  await answer.arrayBuffer(); // the service has done it
  throw new TypeError("fetch failed");
};

async function during(now, run) {
  faults = now;
  return run();
}

async function rival(id, patch) {
  const answer = await through(`${address}/api/contacts/${id}`, {
    method: "PATCH", headers: { "Content-Type": "application/json" }, body: JSON.stringify(patch),
  });
  if (!answer.ok) throw new Error(`${answer.status}`);
}

const person = (email) => ({ name: { firstName: "Jane", lastName: "Doe" }, email });
const ids = [];
for await (const each of all()) ids.push(each.id);

const once = crypto.randomUUID();
const made = await during(["lost", "busy"], () => create(person("once@example.org"), once));
seen.waits = [...waits];
seen.keys = new Set(sent.slice(-3)).size;
seen.again = (await create(person("once@example.org"), once)).id === made.id; // the form is sent once more
seen.contacts = 0;
for await (const _ of all("/api/contacts?email=once@example.org")) seen.contacts += 1;

const base = await read(made.id);
await rival(made.id, { description: "a rival's" });
const merged = await during([undefined, undefined, "lost"], () => change(base, { company: { companyName: "Contoso" } }));
seen.merged = [merged.newest.description, merged.newest.company.companyName, merged.newest.sequence, merged.both];

const conflict = await change(base, { description: "mine", email: "other@example.org" });
seen.conflict = [conflict.newest.description, conflict.newest.email, conflict.both];

seen.refused = await create({ ...person("nobody") }).catch((problem) => [problem.status, problem.errors[0].code]);
faults = Array(5).fill("lost");
seen.given_up = await read(made.id).catch((error) => error.message);

const more = [];
for (const name of ["a", "b"]) more.push((await create(person(`${name}@example.org`))).id);
const paged = [];
for await (const each of all("/api/contacts?pageSize=1")) paged.push(each.id);
seen.paged = [paged.length - ids.length, new Set(paged).size === paged.length, more.every((id) => paged.includes(id))];

const look = await changed("2026-01-01T00:00:00+00:00");
await rival(more[0], { description: "after the look" });
const next = await changed(look.since);
seen.changed = [look.items.length === paged.length, more.every((id) => look.items.some((each) => each.id === id)), next.items.find((each) => each.id === more[0]).description, next.since >= look.since];
console.log(JSON.stringify(seen));
