// Keeps a page as the server would draw it now: fetches it again and changes what differs, so that
// focus, open details and scrolling stay. Without this script the pages work and stand still.

const BEHIND_MS = 15_000; // the longest pause between two tries while the service is away
const main = document.querySelector("main");
const connection = document.querySelector("#connection");
const every = Number(main.dataset.every) * 1000;

let tag = null; // of the page as it is shown
let failures = 0;
let timer = 0;
let fetching = false;
let again = false; // asked for while a fetch was under way

// --- the page --------------------------------------------------------------------------------------

async function get(address, headers = {}) {
  return fetch(address, { headers: { Accept: "text/html", ...headers }, cache: "no-store" });
}

async function refresh() {
  clearTimeout(timer);
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  const address = location.href;
  try {
    const answer = await get(address, tag ? { "If-None-Match": tag } : {});
    if (answer.status !== 304 && !answer.ok) throw new Error(`status ${answer.status}`);
    if (answer.status !== 304 && address === location.href) {
      show(await answer.text());
      tag = answer.headers.get("ETag");
    }
    failures = 0;
  } catch {
    failures += 1;
  }
  fetching = false;
  connection.textContent = failures ? "Not connected; trying again" : "";
  if (again) {
    again = false;
    await refresh();
  } else plan();
}

function plan() {
  clearTimeout(timer);
  if (every && !document.hidden) timer = setTimeout(refresh, Math.min(every * 2 ** failures, BEHIND_MS));
}

function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  document.title = fresh.title;
  update(main, fresh.querySelector("main"));
  loadParts();
  tick();
}

// --- changing what differs ---------------------------------------------------------------------------

function update(shown, fresh) {
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

function updateChildren(shown, fresh) {
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

// --- parts that are fetched on their own -------------------------------------------------------------

const loaded = new Map(); // id -> the version that is shown

function loadParts() {
  for (const part of document.querySelectorAll("[data-load]"))
    if (loaded.get(part.id) !== part.dataset.version) load(part);
}

async function load(part) {
  const { load: address, version } = part.dataset;
  loaded.set(part.id, version);
  try {
    const fresh = new DOMParser().parseFromString(await (await get(address)).text(), "text/html");
    const found = fresh.getElementById(part.id) ?? fresh.querySelector("main");
    updateChildren(part, found);
    tick();
  } catch {
    setTimeout(() => loaded.delete(part.id), BEHIND_MS); // its link stays; the next look tries again
  }
}

// --- time --------------------------------------------------------------------------------------------

const UNITS = [["day", 86_400], ["hour", 3_600], ["minute", 60]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

function tick() {
  const now = Date.now() / 1000;
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const then = Date.parse(time.dateTime) / 1000;
    const unit = UNITS.find(([, seconds]) => now - then >= seconds);
    write(time, unit ? relative.format(-Math.floor((now - then) / unit[1]), unit[0]) : "just now");
    time.title = new Date(then * 1000).toLocaleString();
  }
  for (const span of document.querySelectorAll("[data-since]")) {
    const since = span.dataset.since;
    write(span, duration(Math.max(0, Math.round(now - (Number(since) || Date.parse(since) / 1000)))));
  }
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function duration(seconds) {
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two(Math.floor((seconds % 3600) / 60))} min`;
}

// --- what sets it in motion --------------------------------------------------------------------------

function listen() {
  if (!main.dataset.events) return;
  const events = new EventSource(main.dataset.events);
  for (const name of ["message", "job", "end"]) events.addEventListener(name, refresh);
  events.addEventListener("end", () => events.close());
}

function search(field) {
  let pause = 0;
  field.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => {
      const query = new URLSearchParams(new FormData(field.form));
      if (!query.get("q")) query.delete("q");
      history.replaceState(null, "", query.size ? `/?${query}` : "/");
      tag = null;
      refresh();
    }, 200);
  });
  document.addEventListener("keydown", (press) => {
    if (press.key !== "/" || press.target.closest("input, textarea") || press.ctrlKey || press.metaKey) return;
    press.preventDefault();
    field.focus();
  });
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : every && refresh()));
document.querySelectorAll("[data-search]").forEach(search);
setInterval(tick, 1000);
tick();
loadParts();
listen();
plan();
