// Live pages: times in the reader's zone, and parts of the page that are replaced when there is something new.
// Without this file every page can be read; a reload shows what is new.
"use strict";

const GAP_MS = 1000; // Between two refreshes.
const SETTLE_MS = 120; // After news, until the page asks for what it changed.
const ROWS_MAX = 100; // Of live attempts.

const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function localTimes(root) {
  for (const each of root.querySelectorAll("time[datetime]")) {
    const at = new Date(each.dateTime);
    if (each.title || Number.isNaN(at.getTime())) continue;
    each.title = each.textContent;
    each.textContent = zoned.format(at);
  }
}

function say(text) {
  const connection = document.getElementById("connection");
  if (connection && connection.textContent !== text) connection.textContent = text;
}

// ---- parts of the page

function replace(old, fresh) {
  localTimes(fresh);
  if (old.innerHTML === fresh.innerHTML) return;
  if (old.contains(document.activeElement) && document.activeElement.matches("input, select")) return;
  const open = new Set([...old.querySelectorAll("details[open][id]")].map((each) => each.id));
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const link = focused && focused.getAttribute("href");
  old.replaceChildren(...document.importNode(fresh, true).childNodes);
  for (const each of old.querySelectorAll("details[id]")) if (open.has(each.id)) each.open = true;
  if (link) for (const each of old.querySelectorAll("a[href]")) if (each.getAttribute("href") === link) each.focus();
}

let refreshing = false;
let again = false;
let lastAt = 0;

async function refresh() {
  if (refreshing) {
    again = true;
    return;
  }
  refreshing = true;
  lastAt = performance.now();
  try {
    const answer = await fetch(location.href, { headers: { "x-console-refresh": "1" }, redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) {
      say("The session is over: reload this page to sign in again.");
      stop();
      return;
    }
    if (!answer.ok) {
      say(`The server answers ${answer.status}: what you see may be old.`);
      return;
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const part = fresh.getElementById(old.id);
      if (part) replace(old, part);
    }
    if (fresh.body.dataset.refresh !== document.body.dataset.refresh) {
      document.body.dataset.refresh = fresh.body.dataset.refresh;
      repeat();
    }
    say("This page is live.");
  } catch {
    say("The server cannot be reached: what you see may be old.");
  } finally {
    refreshing = false;
    if (again) {
      again = false;
      soon();
    }
  }
}

let timer = 0;

function soon() {
  if (timer) return;
  const wait = Math.max(SETTLE_MS, lastAt + GAP_MS - performance.now());
  timer = setTimeout(() => {
    timer = 0;
    refresh();
  }, wait);
}

// ---- live attempts

let news = null;
let every = 0;

function cell(row, text, kind) {
  const made = row.insertCell();
  if (kind) made.className = kind;
  made.textContent = text;
  return made;
}

function visible(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}]/gu, (each) => {
    const code = each.codePointAt(0);
    return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

function show(attempt) {
  const table = document.getElementById("live-attempts");
  if (!table) return;
  document.getElementById("no-live").hidden = true;
  table.hidden = false;
  const row = table.tBodies[0].insertRow(0);
  const at = document.createElement("time");
  at.dateTime = attempt.at;
  at.textContent = `${attempt.at.slice(0, 19).replace("T", " ")} UTC`;
  row.insertCell().append(at);
  const tag = document.createElement("span");
  tag.className = attempt.verdict === "delivered" ? "tag good" : "tag bad";
  tag.textContent = attempt.verdict.replaceAll("_", " ");
  row.insertCell().append(tag);
  cell(row, attempt.sequence ?? "ping", "num");
  const event = cell(row, "");
  if (attempt.event_id) {
    const link = document.createElement("a");
    link.href = `/console/events/${encodeURIComponent(attempt.receiver.split(".")[0])}/${encodeURIComponent(attempt.event_id)}`;
    link.textContent = visible(attempt.event_id);
    event.append(link);
  }
  cell(row, attempt.attempt, "num");
  cell(row, attempt.status ? `HTTP ${attempt.status}` : visible(attempt.error ?? "–").slice(0, 300));
  cell(row, attempt.latency_ms == null ? "–" : `${Number(attempt.latency_ms.toPrecision(3))} ms`, "num");
  localTimes(row);
  while (table.tBodies[0].rows.length > ROWS_MAX) table.tBodies[0].deleteRow(-1);
}

function repeat() {
  clearInterval(every);
  const seconds = Number(document.body.dataset.refresh);
  every = seconds ? setInterval(soon, seconds * 1000) : 0;
}

function start() {
  const { live } = document.body.dataset;
  if (live && !news) {
    news = new EventSource(live);
    news.addEventListener("attempt", (event) => {
      show(JSON.parse(event.data));
      soon();
      setTimeout(soon, GAP_MS); // The ledger and the figures are a moment later.
    });
    news.addEventListener("open", () => {
      for (const each of document.querySelectorAll(".live")) each.hidden = false;
      say("This page is live.");
    });
    news.addEventListener("end", () => soon());
  }
  say("This page refreshes itself.");
  if (!every) repeat();
}

function stop() {
  if (news) news.close();
  news = null;
  clearInterval(every);
  every = 0;
}

localTimes(document);
if (document.body.dataset.live || Number(document.body.dataset.refresh)) {
  // A page that nobody sees asks for nothing, and leaves its connection to others.
  document.addEventListener("visibilitychange", () => {
    stop();
    if (!document.hidden) {
      start();
      soon();
    }
  });
  addEventListener("pagehide", stop);
  if (!document.hidden) start();
}
