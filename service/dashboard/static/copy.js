// Buttons that copy the text of the element before them; they are shown only where this script runs.

const SHOWN_MS = 1_500; // how long a button says what became of it

export function copyOnClick() {
  document.documentElement.classList.add("scripts");
  document.addEventListener("click", async ({ target }) => {
    const button = target.closest("[data-copy]");
    if (!button) return;
    const word = button.querySelector("span");
    word.textContent = (await copy(button.previousElementSibling)) ? "Copied" : "Select it";
    setTimeout(() => (word.textContent = "Copy"), SHOWN_MS);
  });
}

async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent.trimEnd());
    return true;
  } catch {
    getSelection().selectAllChildren(element); // a page over plain HTTP has no clipboard of its own
    return document.execCommand("copy");
  }
}
