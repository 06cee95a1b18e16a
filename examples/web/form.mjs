// The form on the screen has a field for each text of a contact, and what is wrong stands at its field.

import { FIELDS, REQUIRED } from "./contact.mjs";
import { find, make } from "./elements.mjs";

export const LABELS = {
  "name.firstName": "First name", "name.lastName": "Last name", email: "E-mail", description: "Description",
  "company.companyName": "Company", "company.street": "Street", "company.houseNumber": "House number",
  "company.postalCode": "Postal code", "company.city": "City", "company.country": "Country",
};
export const input = (field) => find(`field-${field}`);
const WIDE = new Set(["email", "description", "company.companyName"]);

function built(field) {
  const tag = field === "description" ? "textarea" : "input";
  const required = REQUIRED.has(field) && !field.startsWith("company.");
  return make(
    "div", { class: WIDE.has(field) && "wide" },
    make("label", { for: `field-${field}` }, LABELS[field]),
    make(tag, { id: `field-${field}`, autocomplete: "off", required, "aria-describedby": `wrong-${field}`, ...(field === "email" && { type: "email" }) }),
    make("p", { id: `wrong-${field}`, class: "problem" }),
  );
}

find("form").append(
  ...FIELDS.filter((field) => !field.startsWith("company.")).map(built),
  make("fieldset", {}, make("legend", {}, "Company, optional"), ...FIELDS.filter((field) => field.startsWith("company.")).map(built)),
  make("p", { class: "buttons" },
    make("button", { type: "submit", class: "main", id: "save" }, "Save"),
    make("button", { type: "button", id: "close" }, "Close"),
    make("button", { type: "button", class: "danger", id: "delete" }, "Delete")),
);

export const written = () => Object.fromEntries(FIELDS.map((field) => [field, input(field).value]));

export function fill(form) {
  for (const field of FIELDS) input(field).value = form[field];
}

/** Say what is wrong, at its field where there is one. */
export function complain(error) {
  const wrong = new Map((error?.errors ?? []).map(({ field, reason }) => [field, reason]));
  for (const field of FIELDS) {
    find(`wrong-${field}`).textContent = wrong.get(field) ?? "";
    input(field).setAttribute("aria-invalid", String(wrong.has(field)));
  }
  const first = FIELDS.find((field) => wrong.has(field));
  find("editor-problem").textContent = first || !error ? "" : explained(error);
  if (first) input(first).focus();
}

function explained(error) {
  if (error.status === 404) return "This contact was deleted. Copy what you need, and make a new one.";
  if (!error.isOpen) return error.message;
  return `${error.message} Your change may be stored all the same. Try again${error.retryAfter ? ` in ${error.retryAfter} s` : ""}: it is made once.`;
}
