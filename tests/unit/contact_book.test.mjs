// The modules of examples/web/ without a browser; test_contact_book.py runs this file.

import assert from "node:assert/strict";
import { test } from "node:test";

const WEB = new URL("../../examples/web/", import.meta.url);
const { FIELDS, body, merge, patch, texts } = await import(new URL("contact.mjs", WEB));
const { arrival, isGone, shows } = await import(new URL("journey.mjs", WEB));

globalThis.document = { querySelector: () => ({ content: "http://api.example/api/" }) };
globalThis.sessionStorage = { getItem: () => "k", setItem() {}, removeItem() {} };
const { Change, Refused } = await import(new URL("api.mjs", WEB));

const ANN = { name: { firstName: "Ann", lastName: "Lee" }, email: "ann@contoso.com", description: null, company: null };
const AT_WORK = { ...ANN, company: { companyName: "Contoso", street: null, houseNumber: null, postalCode: null, city: "Oslo", country: "NO" } };
const form = (changes = {}, of = ANN) => ({ ...texts(of), ...changes });

test("a contact is one text a field", () => {
  assert.deepEqual(Object.keys(texts(null)), FIELDS);
  assert.deepEqual([...new Set(Object.values(texts(null)))], [""]);
  assert.equal(texts(AT_WORK)["company.city"], "Oslo");
  assert.equal(texts(AT_WORK)["company.street"], "");
});

test("a new contact has what was filled in, and what the API asks for", () => {
  assert.deepEqual(body(form()), { name: { firstName: "Ann", lastName: "Lee" }, email: "ann@contoso.com" });
  assert.deepEqual(body(texts(null)), { name: { firstName: "", lastName: "" }, email: "" });
  assert.deepEqual(body(form({ "company.city": "Oslo" })).company, { companyName: "", city: "Oslo" });
});

test("a patch is the difference", () => {
  assert.equal(patch(form(), form()), null);
  assert.deepEqual(patch(form(), form({ "name.lastName": "Ray", description: "x" })), { name: { lastName: "Ray" }, description: "x" });
  assert.deepEqual(patch(form({ description: "x" }), form()), { description: null });
  assert.deepEqual(patch(form(), form({ email: "" })), { email: "" }, "the API says that it is needed");
  assert.deepEqual(patch(texts(AT_WORK), form({ "company.city": "" }, AT_WORK)), { company: { city: null } });
  assert.deepEqual(patch(form(), form({ "company.companyName": "Contoso" })), { company: { companyName: "Contoso" } });
  assert.deepEqual(patch(texts(AT_WORK), form({ email: "a@b.no" })), { email: "a@b.no", company: null });
});

test("of two changes each is kept, and where both changed a field a person decides", () => {
  const mine = form({ email: "mine@contoso.com", description: "mine" });
  const theirs = form({ email: "theirs@contoso.com", "name.firstName": "Anna" });
  const { form: merged, conflicts, taken } = merge(form(), mine, theirs);
  assert.deepEqual(merged, form({ email: "mine@contoso.com", description: "mine", "name.firstName": "Anna" }));
  assert.deepEqual([conflicts, taken], [["email"], ["name.firstName"]]);
  assert.deepEqual(merge(form(), mine, mine), { form: mine, conflicts: [], taken: [] }, "the same change is no conflict");
  assert.deepEqual(patch(theirs, merged), { email: "mine@contoso.com", description: "mine" });
});

test("an arrival is waited for, past failures, and not for ever", async () => {
  let time = 0;
  const clock = { now: () => time, wait: async (pause) => (time += pause), pause: 100, patience: 1000 };
  const pages = [new Error("away"), { items: [] }, { items: [{ id: "a", sequence: 1 }] }, { items: [{ id: "a", sequence: 3 }] }];
  const look = async () => {
    const page = pages.length > 1 ? pages.shift() : pages[0];
    if (page instanceof Error) throw page;
    return page;
  };
  assert.equal(await arrival(look, shows("a", 2), clock), 300);
  assert.equal(await arrival(look, isGone("a"), clock), null);
  assert.equal(await arrival(look, isGone("b"), clock), 0);
  assert.equal(await arrival(look, isGone("a"), { ...clock, stopped: () => true }), null);
});

test("while its outcome is open the same change has the same key, and another change another", async () => {
  const sent = [], answers = [];
  globalThis.fetch = async (url, options) => {
    sent.push({ url, ...options });
    const next = answers.shift();
    if (next === undefined) throw new TypeError("Failed to fetch");
    return new Response(next === 204 ? null : JSON.stringify({ detail: "refused" }), { status: next, headers: { ETag: '"1"', "Retry-After": "7" } });
  };
  const change = new Change(), keys = () => sent.map((each) => each.headers["Idempotency-Key"]);
  const send = (text) => change.send("contacts/a", "PATCH", { etag: '"0"', body: { description: text } });
  await assert.rejects(send("x"), (error) => error instanceof Refused && error.isOpen && error.status === 0);
  answers.push(503, 200, 200, 400, 200, 204);
  await assert.rejects(send("x"), (error) => error.isOpen && error.retryAfter === 7 && error.message === "refused");
  assert.equal((await send("x")).etag, '"1"');
  await send("x");
  await assert.rejects(send("y"), (error) => !error.isOpen);
  await send("y");
  await change.send("contacts/a", "DELETE", { etag: '"1"' });
  const [first, second, third, ...others] = keys();
  assert.deepEqual([second, third], [first, first]);
  assert.equal(new Set([first, ...others]).size, 5);
  assert.deepEqual([sent[0].headers["If-Match"], sent[0].headers["Content-Type"]], ['"0"', "application/merge-patch+json"]);
  assert.deepEqual([sent[0].url, sent[0].headers["x-functions-key"]], ["http://api.example/api/contacts/a", "k"]);
});
