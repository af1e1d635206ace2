// Fills in the requests on the page of calls, copies them for curl, and sends them. The browser adds the key that its
// reader has signed in with, so that a request may do what its reader may do.

const MOST_SHOWN = 200_000; // characters of an answer

function setUp(form) {
  const { method, path } = form.dataset;
  const command = form.querySelector(".curl");
  const body = form.querySelector("[data-body]");
  const said = form.querySelector("[data-said]");
  const answer = form.querySelector("[data-answer]");
  const fields = [...form.querySelectorAll("[data-in]")];

  function target() {
    const query = new URLSearchParams();
    let filled = path;
    for (const { name, value, dataset } of fields) {
      if (!value) continue;
      if (dataset.in === "query") query.append(name, value);
      else filled = filled.replace(`{${name}}`, value.split("/").map(encodeURIComponent).join("/"));
    }
    return query.size ? `${filled}?${query}` : filled;
  }

  function write() {
    const lines = [
      `curl ${method === "GET" ? "" : `-X ${method} `}"${location.origin}${target()}"`,
      '-H "Authorization: Bearer $SLIPWAY_API_KEY"',
    ];
    if (body) lines.push('-H "Content-Type: application/json"', `-d '${body.value.replaceAll("'", "'\\''")}'`);
    command.textContent = lines.join(" \\\n  ");
  }

  async function copy() {
    try {
      await navigator.clipboard.writeText(command.textContent);
      said.textContent = "Copied";
    } catch { // not over plain HTTP from another machine: the reader copies what is selected
      getSelection().selectAllChildren(command);
      said.textContent = "Selected; copy it from the menu";
    }
  }

  async function send(event) {
    event.preventDefault();
    said.textContent = "Sending…";
    const headers = { Accept: "application/json", ...(body ? { "Content-Type": "application/json" } : {}) };
    try {
      const got = await fetch(target(), { method, headers, body: body?.value, cache: "no-store" });
      said.textContent = `${got.status} ${got.statusText}`;
      answer.textContent = await read(got);
    } catch (error) {
      said.textContent = "No answer";
      answer.textContent = String(error);
    }
    answer.hidden = !answer.textContent;
  }

  form.querySelector("[data-scripted]").hidden = false;
  form.querySelector("[data-curl]").addEventListener("click", copy);
  form.addEventListener("input", write);
  form.addEventListener("submit", send);
  write();
}

async function read(answer) {
  const type = answer.headers.get("Content-Type") ?? "";
  if (!/json|text/.test(type)) return type && `${(await answer.blob()).size} bytes of ${type}`;
  const text = await answer.text();
  const shown = /json/.test(type) ? JSON.stringify(JSON.parse(text), null, 2) : text;
  return shown.length > MOST_SHOWN ? `${shown.slice(0, MOST_SHOWN)}\n…` : shown;
}

document.querySelectorAll("[data-try]").forEach(setUp);
