// A client whose types are generated from the document: it creates, reads, changes, finds and deletes a contact.
//
//     node client.js ADDRESS
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

const api = createClient<paths>({ baseUrl: process.argv[2], headers: { "x-functions-key": "any" } });

function given<T>(answer: { data?: T; error?: components["schemas"]["Problem"] }): T {
  if (answer.data === undefined) throw new Error(answer.error?.detail ?? "no answer");
  return answer.data;
}

const jane: components["schemas"]["NewContact"] = {
  name: { firstName: "Jane", lastName: "Doe" },
  email: "jane@example.org",
  company: { companyName: "Contoso" },
};
const created = await api.POST("/api/contacts", {
  body: jane,
  params: { header: { "Idempotency-Key": crypto.randomUUID() } },
});
const contact = given(created);
const city: string | null | undefined = contact.company?.city;
const etag = created.response.headers.get("ETag") ?? "";

const path = { id: contact.id };
const moved = await api.PATCH("/api/contacts/{id}", {
  body: { company: { city: "Oslo" } },
  params: { path, header: { "If-Match": etag } },
});
const changed = given(moved);

const stale = await api.PATCH("/api/contacts/{id}", {
  body: { description: null },
  params: { path, header: { "If-Match": etag } },
});
const refused = await api.POST("/api/contacts", { body: { ...jane, email: "nobody" } });
const page = given(await api.GET("/api/contacts", { params: { query: { pageSize: 100 } } }));
const gone = await api.DELETE("/api/contacts/{id}", { params: { path } });

console.log(
  JSON.stringify({
    city,
    moved: "company" in changed ? changed.company?.city : undefined,
    stale: stale.error?.type,
    refused: refused.error?.errors.map((each) => [each.field, each.code]),
    listed: page.items.some((each) => each.id === contact.id),
    gone: gone.response.status,
  }),
);
