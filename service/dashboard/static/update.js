// Turns one tree of elements into another by changing what differs and nothing else. Elements with an id
// are recognised wherever they have moved; the content of one with `data-load` is left to whoever loads it.

export function update(shown, fresh) {
  if (shown.isEqualNode(fresh)) return;
  if (shown.nodeType !== Node.ELEMENT_NODE) {
    shown.nodeValue = fresh.nodeValue;
    return;
  }
  updateAttributes(shown, fresh);
  if (!shown.dataset.load) updateChildren(shown, fresh);
}

function updateAttributes(shown, fresh) {
  const isOurs = (name) => name === "open" && shown.localName === "details"; // the reader's choice
  for (const { name } of [...shown.attributes])
    if (!fresh.hasAttribute(name) && !isOurs(name)) shown.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (shown.getAttribute(name) !== value && !isOurs(name)) shown.setAttribute(name, value);
}

export function updateChildren(shown, fresh) {
  const named = new Map([...shown.children].filter((child) => child.id).map((child) => [child.id, child]));
  let place = shown.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const kept = wanted.id ? named.get(wanted.id) : isAlike(place, wanted) ? place : null;
    if (kept && kept === place) place = place.nextSibling;
    else shown.insertBefore(kept ?? document.importNode(wanted, true), place);
    if (kept) update(kept, wanted);
  }
  while (place) {
    const rest = place.nextSibling;
    place.remove();
    place = rest;
  }
}

function isAlike(node, wanted) {
  return node?.nodeName === wanted.nodeName && !node.id && !wanted.id;
}
