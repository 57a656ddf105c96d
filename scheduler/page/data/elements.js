/* Making elements. Text goes in as text, never as markup. */

const byId = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined));
  return made;
}

const fill = (element, ...children) => element.replaceChildren(...children.filter((c) => c !== null && c !== undefined));

const announce = (text) => { byId("announce").textContent = text; };
