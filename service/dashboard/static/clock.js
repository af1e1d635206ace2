// Replaces the times on a page by how long ago they were, and keeps durations counting.

const UNITS = [["day", 86_400], ["hour", 3_600], ["minute", 60]];
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

export function tick() {
  const now = Date.now() / 1000;
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const then = Date.parse(time.dateTime) / 1000;
    const unit = UNITS.find(([, seconds]) => now - then >= seconds);
    write(time, unit ? relative.format(-Math.floor((now - then) / unit[1]), unit[0]) : "just now");
    time.title = new Date(then * 1000).toLocaleString();
  }
  for (const span of document.querySelectorAll("[data-since]")) {
    write(span, duration(Math.max(0, Math.round(now - Date.parse(span.dataset.since) / 1000))));
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
