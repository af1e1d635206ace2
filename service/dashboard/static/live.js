// Keeps a page current: fetches it again and changes only what differs, so that focus, open details and
// scrolling stay. Without this script the pages work but do not update.

import { tick } from "./clock.js";
import { copyOnClick } from "./copy.js";
import { update, updateChildren } from "./update.js";

const BEHIND_MS = 15_000; // the longest pause between two tries while the service is away
const main = document.querySelector("main");
const connection = document.querySelector("#connection");
const every = Number(main.dataset.every) * 1000;

let tag = null; // of the page as it is shown
let failures = 0;
let timer = 0;
let fetching = false;
let again = false; // whether a refresh was requested during a fetch

// --- the page --------------------------------------------------------------------------------------

async function get(address, known) {
  const headers = known ? { "If-None-Match": known } : {};
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
    const answer = await get(address, tag);
    if (answer.status >= 500) throw new Error(`status ${answer.status}`);
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
  const pause = events ? BEHIND_MS : Math.min(every * 2 ** failures, BEHIND_MS);
  if (every && !document.hidden) timer = setTimeout(refresh, pause);
}

function show(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  document.title = fresh.title;
  update(main, fresh.querySelector("main"));
  loadParts();
  listen();
  tick();
}

// --- parts that are fetched on their own -------------------------------------------------------------

const loaded = new Map(); // id -> the version that is shown
const tags = new Map(); // id -> the tag of what is shown
const timers = new Map(); // id -> the timer of its next fetch

function loadParts() {
  for (const part of document.querySelectorAll("[data-load]"))
    if (loaded.get(part.id) !== part.dataset.version && !isFolded(part)) load(part);
}

function isFolded(part) {
  return part.closest("details:not([open])") !== null;
}

async function load(part) {
  const { load: address, version } = part.dataset;
  loaded.set(part.id, version);
  try {
    const answer = await get(address, tags.get(part.id));
    if (answer.status >= 500) throw new Error(`status ${answer.status}`);
    if (answer.status !== 304) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      updateChildren(part, fresh.getElementById(part.id) ?? fresh.querySelector("main"));
      tags.set(part.id, answer.headers.get("ETag"));
      tick();
    }
    if (part.dataset.every) reloadLater(Number(part.dataset.every) * 1000, part);
  } catch {
    reloadLater(BEHIND_MS, part); // until then its link or its last content stays
  }
}

function reloadLater(pause, part) {
  clearTimeout(timers.get(part.id));
  timers.set(part.id, setTimeout(reload, pause, part));
}

function reload(part) {
  loaded.delete(part.id);
  if (part.isConnected && !document.hidden && !isFolded(part)) load(part);
}

// --- what triggers updates ---------------------------------------------------------------------------

let events = null; // open only while the page is visible: a browser has six connections to a host

function listen() {
  const address = main.dataset.events;
  if (!address || document.hidden) silence();
  else if (!events) {
    events = new EventSource(address);
    events.addEventListener("job", refresh);
    events.addEventListener("end", silenceAndRefresh);
    events.addEventListener("error", silenceAndRefresh); // the refreshed page shows what is wrong
  }
}

function silence() {
  events?.close();
  events = null;
}

function silenceAndRefresh() {
  silence();
  refresh();
}

function lookedAt() {
  if (!document.hidden && every) {
    refresh();
    loadParts();
  } else clearTimeout(timer);
  listen();
}

function search(field) {
  let pause = 0;
  const look = () => {
    const query = new URLSearchParams(new FormData(field.form));
    for (const [name, value] of [...query]) if (!value.trim()) query.delete(name);
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    tag = null;
    refresh();
  };
  field.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(look, 200);
  });
  field.form.addEventListener("change", ({ target }) => target !== field && look()); // a filter is whole words
  document.addEventListener("keydown", (press) => {
    if (press.key !== "/" || press.target.closest("input, textarea, select") || press.ctrlKey || press.metaKey) return;
    press.preventDefault();
    field.focus();
  });
}

document.addEventListener("visibilitychange", lookedAt);
addEventListener("pageshow", ({ persisted }) => persisted && location.reload()); // back, from the history
document.addEventListener("submit", ({ target }) => {
  const buttons = target.method === "post" ? target.querySelectorAll("button") : [];
  setTimeout(() => buttons.forEach((button) => (button.disabled = true))); // so that a form is sent once
});
document.querySelectorAll("[data-search]").forEach(search);
document.addEventListener("toggle", loadParts, true); // a part that is folded is loaded once it is opened
copyOnClick();
setInterval(tick, 1000);
tick();
loadParts();
listen();
plan();
