// Elements are built and changed in place. Text from members only ever becomes a text node.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else set(node, name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** An element; an attribute `onclick` is a listener, and false or null leaves an attribute out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function set(node, name, value) {
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value === true ? "" : value))
    node.setAttribute(name, value === true ? "" : value);
}

export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function show(node, isShown) {
  if (node.hidden === isShown) node.hidden = !isShown;
}

/**
 * Make the children of a node follow a list: an item keeps its element, its focus included.
 * `create(item)` builds an element, `update(element, item)` fills it.
 */
export function keyed(parent, items, key, create, update) {
  const active = parent.contains(document.activeElement) ? document.activeElement : null;
  const known = parent.known ?? (parent.known = new Map());
  const keys = new Set(items.map(key));
  for (const [name, element] of known) {
    if (!keys.has(name)) {
      element.remove();
      known.delete(name);
    }
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    let element = known.get(name);
    if (!element) known.set(name, (element = create(item)));
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
    update(element, item);
  }
  if (active && active !== document.activeElement && active.isConnected)
    active.focus({ preventScroll: true });
}
