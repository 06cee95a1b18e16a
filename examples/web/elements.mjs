// Elements of the page are found by their id, and made of texts: nothing that the service answers becomes markup.

export const find = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== false) made.setAttribute(name, value === true ? "" : value);
  made.append(...children);
  return made;
}
