// The chat page: shows one session, follows its event stream, and sends messages until they are taken.
// Text of people and models reaches the document as text nodes only.

const OUTBOX = "crayfish.outbox";
const SESSION = "crayfish.session";
const TOKEN = "crayfish.token";
const QUIET = 45_000; // ms without a byte (the server pings every 15 s) after which a connection is dead
const LONGEST_PAUSE = 15_000;
const PAGE = 50;

const byId = (id) => document.getElementById(id);
const log = byId("log");
const text = byId("text");

// --- small things

function make(tag, className = "", ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function load(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

function save(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // Storage is off or full: the page works, a reload forgets.
  }
}

// crypto.randomUUID exists only on secure origins, which a gateway in the local network is not.
function freshId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((n) => n.toString(16).padStart(2, "0")).join("");
}

const sleepers = new Set();

function pause(ms) {
  return new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      sleepers.delete(wake);
      resolve();
    };
    const timer = setTimeout(wake, ms);
    sleepers.add(wake);
  });
}

const wakeAll = () => [...sleepers].forEach((wake) => wake());

// --- the server

let asking = null;

function askToken(problem) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("token-dialog");
    byId("token-problem").textContent = problem;
    byId("token").value = "";
    dialog.oncancel = (event) => event.preventDefault();
    dialog.querySelector("form").onsubmit = (event) => {
      event.preventDefault();
      const token = byId("token").value.trim();
      if (!/^[\x21-\x7e]+$/.test(token)) {
        byId("token-problem").textContent = "A token has only plain letters, digits and signs.";
        return;
      }
      sessionStorage.setItem(TOKEN, token);
      dialog.close();
      asking = null;
      resolve();
    };
    dialog.showModal();
  });
  return asking;
}

// Asks for the token until the server takes it. Throws when the server can't be reached.
async function call(path, { body, signal } = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const headers = {};
    if (token) headers.Authorization = `Bearer ${token}`;
    if (body) headers["Content-Type"] = "application/json";
    const response = await fetch(path, {
      method: body ? "POST" : "GET",
      body: body && JSON.stringify(body),
      headers,
      signal,
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
    });
    if (response.status !== 401) return response;
    if (sessionStorage.getItem(TOKEN) === token) await askToken(token ? "That token was refused." : "");
  }
}

async function ask(path, options) {
  const response = await call(path, options);
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

// --- text

const INLINE = new RegExp(
  [
    /(?<code>`[^`\n]+`)/,
    /\*\*(?<bold>[^*\n]+)\*\*/,
    /\[(?<label>[^\]\n]+)\]\((?<target>(?:[^()\s]|\([^()\s]*\))+)\)/,
    /(?<url>https?:\/\/(?:[^\s<>"'`()\]}]|\([^\s<>"'`()]*\))+)/,
  ].map((part) => part.source).join("|"),
  "g",
);

// Returns null for a target that a person should not be led to.
function link(target, label) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  const node = make("a", "", label);
  node.href = url.href;
  node.title = url.href;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
  return node;
}

function inline(line) {
  const nodes = [];
  let from = 0;
  for (const match of line.matchAll(INLINE)) {
    const { code, bold, label, target } = match.groups;
    const url = match.groups.url?.replace(/[.,;:!?]+$/, ""); // the end of a sentence is not the link's
    nodes.push(line.slice(from, match.index));
    if (code) nodes.push(make("code", "", code.slice(1, -1)));
    else if (bold) nodes.push(make("strong", "", bold));
    else nodes.push(link(target ?? url, label ?? url) ?? url ?? match[0]);
    from = match.index + (url ?? match[0]).length;
  }
  nodes.push(line.slice(from));
  return nodes;
}

function codeBlock(lines) {
  const code = lines.join("\n");
  const block = make("div", "block", make("pre", "", make("code", "", code)));
  block.firstChild.tabIndex = 0; // so that the keyboard can scroll it
  if (navigator.clipboard) {
    const copy = make("button", "copy", "Copy");
    copy.type = "button";
    copy.onclick = async () => {
      await navigator.clipboard.writeText(code);
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = "Copy"), 1500);
    };
    block.append(copy);
  }
  return block;
}

const KINDS = [
  ["table", /^\s*\|/],
  ["quote", /^>\s?/],
  ["heading", /^#{1,6}\s+/],
  ["blank", /^\s*$/],
];

function block(kind, lines) {
  if (kind === "code" || kind === "table") return codeBlock(lines);
  if (kind === "quote") return make("blockquote", "", ...inline(lines.map((one) => one.replace(/^>\s?/, "")).join("\n")));
  if (kind === "heading") return make("p", "heading", ...inline(lines.map((one) => one.replace(/^#+\s+/, "")).join("\n")));
  return make("p", "", ...inline(lines.map((one) => one.replace(/^(\s*)[-*+]\s+/, "$1• ")).join("\n")));
}

// Fences, tables, quotes, headings and paragraphs; an open fence counts as closed at the end.
function formatted(whole) {
  const blocks = [];
  let kind = "blank";
  let lines = [];
  let fence = null;
  const flush = (next) => {
    if (kind !== "blank") blocks.push(block(kind, lines));
    kind = next;
    lines = [];
  };
  for (const line of whole.split("\n")) {
    const mark = line.match(/^\s*(`{3,}|~{3,})/)?.[1];
    if (fence) {
      if (mark?.startsWith(fence) && line.trim() === mark) {
        flush("blank");
        fence = null;
      } else lines.push(line);
    } else if (mark) {
      flush("code");
      fence = mark;
    } else {
      const next = KINDS.find(([, pattern]) => pattern.test(line))?.[0] ?? "text";
      if (next !== kind) flush(next);
      lines.push(line);
    }
  }
  flush("blank");
  return blocks;
}

// --- the log

const scroll = byId("scroll");
const nearEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;

// Runs a change of the log and keeps its end in view, unless the reader has scrolled up.
function changing(change) {
  const follow = nearEnd();
  const result = change();
  byId("empty").hidden = log.childElementCount > 0;
  if (follow) scroll.scrollTop = scroll.scrollHeight;
  return result;
}

let atEnd = true;
scroll.onscroll = () => (atEnd = nearEnd());
addEventListener("resize", () => atEnd && (scroll.scrollTop = scroll.scrollHeight));

function clock(at) {
  const date = new Date(at * 1000);
  const today = date.toDateString() === new Date().toDateString();
  const time = { hour: "2-digit", minute: "2-digit" };
  const node = make("time", "", date.toLocaleString([], today ? time : { month: "short", day: "numeric", ...time }));
  node.dateTime = date.toISOString();
  return node;
}

function bubble(who, words, at) {
  const node = make("li", `bubble ${who}`, make("span", "unseen", who === "user" ? "You:" : "Crayfish:"));
  node.append(make("div", "said", ...formatted(words)));
  if (at) node.append(clock(at));
  node.words = words;
  return node;
}

// Rows of buttons below a message; pressing one says what it stands for.
function buttonRows(rows) {
  return rows.map((row) => make("div", "buttons", ...row.map(([label, value]) => {
    const button = make("button", "", label);
    button.type = "button";
    button.onclick = () => {
      for (const one of button.closest(".bubble").querySelectorAll(".buttons button")) one.disabled = true;
      say(spoken(value));
    };
    return button;
  })));
}

// The questions of the bot can be answered by a command, whose words their buttons hold.
const spoken = (value) => (/^(approve|deny):/.test(value) ? `/${value.replaceAll(":", " ")}` : value);

// The plan of a longer task, which is kept up to date in its place.
function planned(node, plan) {
  const steps = [...plan.matchAll(/^\[([ >x])\] (.*)$/gm)].map(([, state, words]) => {
    const step = make("li", "", words);
    step.dataset.state = { " ": "open", ">": "doing", x: "done" }[state];
    if (state !== " ") step.append(make("span", "unseen", state === "x" ? " (done)" : " (doing)"));
    return step;
  });
  const older = log.querySelector(".plan");
  const item = make("li", "plan", make("ol", "", ...steps));
  item.setAttribute("aria-label", "Plan");
  older?.remove();
  changing(() => node.replaceWith(item));
}

function activity(name, args, mark = "·") {
  const sign = make("span", "mark", mark);
  return make("li", "activity", make("p", "", sign, make("b", "", name), make("span", "args", args)));
}

function row({ role, text: words, at }) {
  if (role === "user") return bubble("user", words, at);
  if (role === "assistant") return words.trim() ? bubble("bot", words, at) : null;
  if (role === "note") return make("li", "note", "Earlier messages were summed up for the model.");
  return activity(role, words.slice(0, 200));
}

// What the open turn shows: the text that is being written, and whether anything is going on.
const turn = {
  draft: null,
  words: "",
  frame: 0,
  dots: null,

  work(on) {
    byId("stop").hidden = !on;
    const wanted = on && !this.draft;
    if (wanted && !this.dots) {
      this.dots = make("li", "thinking", make("i"), make("i"), make("i"));
      this.dots.setAttribute("aria-hidden", "true");
    }
    if (wanted) changing(() => log.append(this.dots));
    else this.dots?.remove();
  },

  add(words) {
    this.words += words;
    if (!this.draft) {
      this.draft = bubble("bot", "");
      this.draft.setAttribute("aria-busy", "true"); // read aloud once it is whole
      changing(() => log.append(this.draft));
    }
    this.work(true);
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      if (this.draft) changing(() => this.draft.querySelector(".said").replaceChildren(...formatted(this.words)));
    });
  },

  // Text before a tool call stays as an aside; the reply itself comes as a message.
  setAside() {
    if (!this.draft) return;
    if (this.words.trim()) {
      this.draft.querySelector(".said").replaceChildren(...formatted(this.words));
      this.draft.classList.add("aside");
      this.draft.removeAttribute("aria-busy");
    } else this.draft.remove();
    this.forget();
  },

  drop() {
    this.draft?.remove();
    this.forget();
  },

  forget() {
    this.draft = null;
    this.words = "";
  },
};

function show(node) {
  changing(() => (turn.dots?.isConnected ? turn.dots.before(node) : log.append(node)));
}

function lastBubble() {
  return [...log.querySelectorAll(".bubble:not(.aside)")].findLast((one) => one !== turn.draft);
}

// Puts a message where the older one is that it replaces; says its first line where that can't be seen.
function replaced(event) {
  const older = log.querySelector(`[data-name="${CSS.escape(event.replaces)}"]`);
  const node = bubble("bot", older ? event.text : event.text.split("\n", 1)[0], Date.now() / 1000);
  if (older) changing(() => older.replaceWith(node));
  else show(node);
}

function received(event) {
  if (event.replaces) return replaced(event);
  if (event.buttons) return questioned(event);
  const last = lastBubble();
  turn.drop();
  // History was read after the stream began, and a failed turn is told twice: by its end and by its message.
  const twice = last?.words === event.text && (last.classList.contains("error") || last.dataset.history);
  if (twice) delete last.dataset.history;
  else show(bubble("bot", event.text, Date.now() / 1000));
}

function questioned(event) {
  if (log.querySelector(`[data-name="${CSS.escape(event.name)}"]`)) return;
  turn.drop();
  const node = bubble("bot", event.text, Date.now() / 1000);
  node.dataset.name = event.name;
  node.querySelector(".said").append(...buttonRows(event.buttons));
  show(node);
}

function failed(event) {
  turn.drop();
  turn.work(false);
  if (!event.error || lastBubble()?.words === event.error) return;
  show(bubble("bot error", event.error, Date.now() / 1000));
}

function toolStarted(event) {
  turn.setAside();
  const args = Object.entries(event.args ?? {}).map(([name, value]) => `${name}=${value}`).join("  ");
  const node = activity(event.name, args);
  node.dataset.tool = event.name;
  show(node);
  turn.work(true);
}

function toolEnded(event) {
  const node = [...log.querySelectorAll("[data-tool]")].find((one) => one.dataset.tool === event.name);
  if (!node) return;
  delete node.dataset.tool;
  if (event.plan) return planned(node, event.plan);
  const mark = node.querySelector(".mark");
  mark.textContent = event.error ? "✗" : "✓";
  mark.dataset.mark = event.error ? "bad" : "good";
  mark.append(make("span", "unseen", event.error ? "failed" : "done"));
}

function progress(event) {
  if (event.status === "thinking") turn.work(true);
  if (event.status === "done") {
    turn.drop();
    turn.work(false);
  }
  if (event.status === "accepted" && !log.querySelector(`[data-task="${CSS.escape(event.taskId)}"]`)) {
    const node = bubble("user", event.message, Date.now() / 1000);
    node.dataset.task = event.taskId;
    show(node);
  }
}

function happened(event) {
  switch (event.type) {
    case "progress": return progress(event);
    case "delta": return turn.add(event.text);
    case "restart": turn.drop(); return turn.work(true);
    case "tool_start": return toolStarted(event);
    case "tool_end": return toolEnded(event);
    case "compacted": return show(activity("Earlier messages were summed up", "", "≡"));
    case "message": return received(event);
    case "task_error": return failed(event);
    case "task_complete":
      if (!event.result) turn.drop(); // silence
      byId("stop").hidden = true;
      turn.dots?.remove();
  }
}

// --- the stream

let session = /^[\w-]{1,64}$/.test(load(SESSION, "")) ? load(SESSION, "") : "main";
let leaving = new AbortController();

function state(name, words) {
  byId("state").dataset.state = name;
  byId("state").textContent = words;
}

// Yields the frames of an event stream; ends with the connection, or throws when it has died silently.
async function* frames(response, alive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    alive();
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.match(/^data: (.*)$/m);
      if (data) yield { id: part.match(/^id: (\d+)$/m)?.[1], event: JSON.parse(data[1]) };
    }
  }
}

async function connection(where, cursor, onFrame) {
  const over = new AbortController();
  const end = () => over.abort();
  leaving.signal.addEventListener("abort", end);
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = setTimeout(end, QUIET);
  };
  try {
    const query = new URLSearchParams(cursor === null ? { session: where } : { session: where, after: cursor });
    const response = await call(`sse?${query}`, { signal: over.signal });
    if (!response.ok) throw new Error(await reason(response));
    for await (const { id, event } of frames(response, alive)) await onFrame(id, event);
  } finally {
    clearTimeout(timer);
    leaving.signal.removeEventListener("abort", end);
    end();
  }
}

async function follow(where, signal) {
  let cursor = null;
  let wait = 500;
  while (!signal.aborted) {
    try {
      await connection(where, cursor, async (id, event) => {
        if (signal.aborted) return;
        if (event.status === "connected") {
          // What follows on the stream waits until history is shown.
          if (cursor === null) await showHistory(where, signal);
          turn.drop();
          turn.work(false);
          state("ready", "Connected");
          wait = 500;
        } else happened(event);
        cursor = id;
      });
    } catch (error) {
      if (!signal.aborted) console.warn("The stream ended:", error.message);
    }
    if (signal.aborted) return;
    state("offline", "Reconnecting…");
    await pause(wait);
    wait = Math.min(wait * 2, LONGEST_PAUSE);
  }
}

// --- history and sessions

let earliest = null;

async function rows(where, before) {
  const query = new URLSearchParams(before ? { limit: PAGE, before } : { limit: PAGE });
  const { messages } = await ask(`api/sessions/${where}/messages?${query}`);
  earliest = messages[0]?.seq ?? null;
  byId("earlier").hidden = messages.length < PAGE;
  return messages.map(row).filter(Boolean);
}

async function showHistory(where, signal) {
  const nodes = await rows(where);
  if (signal.aborted) return;
  log.replaceChildren(...nodes);
  const last = lastBubble();
  if (last && !last.classList.contains("user")) last.dataset.history = "yes";
  for (const item of load(OUTBOX, []).filter((one) => one.session === where)) showPending(item);
  byId("empty").hidden = log.childElementCount > 0;
  scroll.scrollTop = scroll.scrollHeight;
}

byId("earlier").onclick = async () => {
  const height = scroll.scrollHeight;
  try {
    log.prepend(...(await rows(session, earliest)));
    scroll.scrollTop += scroll.scrollHeight - height;
  } catch (error) {
    state("offline", error.message);
  }
};

async function listSessions() {
  const names = new Set([session, "main"]);
  try {
    for (const one of (await ask("api/sessions?limit=100")).sessions) names.add(one.session);
  } catch {
    // The stream says that the server is away; the list comes with the next switch.
  }
  byId("session").replaceChildren(...[...names].map((name) => new Option(name, name, false, name === session)));
}

function open(name) {
  leaving.abort();
  leaving = new AbortController();
  session = name;
  save(SESSION, name);
  turn.drop();
  turn.work(false);
  log.replaceChildren();
  byId("earlier").hidden = true;
  text.value = load(`crayfish.draft.${name}`, "");
  grow();
  state("busy", "Connecting…");
  wakeAll();
  follow(name, leaving.signal);
  return listSessions();
}

byId("session").onchange = (event) => open(event.target.value);

byId("new").onclick = () => {
  byId("name").value = "";
  byId("new-dialog").showModal();
};
byId("new-cancel").onclick = () => byId("new-dialog").close();
byId("new-dialog").querySelector("form").onsubmit = (event) => {
  event.preventDefault();
  byId("new-dialog").close();
  open(byId("name").value);
  text.focus();
};

// --- sending

const bubbleOf = (item) => log.querySelector(`[data-task="task_${item.id}"]`);
const fresh = new Set(); // messages that were written since this page was loaded

function showPending(item) {
  const node = bubbleOf(item) ?? bubble("user", item.text, item.at);
  node.dataset.task = `task_${item.id}`;
  node.classList.add("pending");
  if (!node.isConnected) show(node);
  if (item.problem) tell(item, item.problem, true);
}

// Says under a message what became of it.
function tell(item, words, final = false) {
  const node = bubbleOf(item);
  if (!node) return;
  node.querySelector(".fate")?.remove();
  if (!words) return;
  const line = make("p", final ? "fate problem" : "fate", words);
  if (final) {
    const edit = make("button", "", "Edit");
    edit.type = "button";
    edit.onclick = () => {
      text.value = [item.text, text.value].filter(Boolean).join("\n");
      drafted();
      update((items) => items.filter((one) => one.id !== item.id));
      changing(() => node.remove());
      text.focus();
    };
    line.append(edit);
  }
  changing(() => node.append(line));
}

// Other tabs share the list, so it is read anew for every change.
function update(change) {
  save(OUTBOX, change(load(OUTBOX, [])));
}

// Returns the milliseconds to wait before the next try, or 0 when the message is settled.
async function deliver(item) {
  let response;
  try {
    response = await call("api/chat", { body: { message: item.text, session: item.session, id: item.id } });
  } catch {
    return 2000;
  }
  if (response.ok) {
    update((items) => items.filter((one) => one.id !== item.id));
    bubbleOf(item)?.classList.remove("pending");
    tell(item, "");
    return 0;
  }
  if ([408, 429].includes(response.status) || response.status >= 500) {
    return 1000 * Math.max(1, Math.min(300, Number(response.headers.get("Retry-After")) || 5));
  }
  item.problem = `Not sent: ${await reason(response)}`;
  update((items) => items.map((one) => (one.id === item.id ? item : one)));
  tell(item, item.problem, true);
  return 0;
}

let flushing = false;

// Sends what waits, oldest first; the id lets the server take a message once however often it is sent.
async function flush() {
  if (flushing) return;
  flushing = true;
  let stale = false;
  for (;;) {
    const item = load(OUTBOX, []).find((one) => !one.problem);
    if (!item) break;
    const wait = await deliver(item);
    if (wait) {
      tell(item, "Waiting for the server…");
      await pause(wait);
    } else stale ||= item.session === session && !fresh.has(item.id);
  }
  flushing = false;
  // A message from before a reload may be in history already, under no id that we know.
  if (stale) open(session);
}

function drafted() {
  save(`crayfish.draft.${session}`, text.value || null);
  grow();
}

function grow() {
  text.style.height = "auto";
  text.style.height = `${text.scrollHeight + 2}px`;
}

function send() {
  if (text.value.trim()) say(text.value, true);
}

// Sends a message; what was `typed` leaves the box once it is safe.
function say(words, typed = false) {
  const item = { id: freshId(), session, text: words, at: Date.now() / 1000 };
  fresh.add(item.id);
  update((items) => [...items, item]);
  if (!load(OUTBOX, []).some((one) => one.id === item.id)) return sendUnstored(item, typed);
  taken(item, typed);
  flush();
}

// Without storage the text stays in the box until the server has it.
async function sendUnstored(item, typed) {
  byId("send").disabled = true;
  const wait = await deliver(item);
  byId("send").disabled = false;
  if (wait) state("offline", "Not sent: the server is away");
  else if (item.problem) state("offline", item.problem);
  else taken(item, typed);
}

function taken(item, typed) {
  if (typed) text.value = "";
  drafted();
  showPending(item);
  if (!load(OUTBOX, []).some((one) => one.id === item.id)) bubbleOf(item).classList.remove("pending");
  scroll.scrollTop = scroll.scrollHeight;
}

byId("composer").onsubmit = (event) => {
  event.preventDefault();
  send();
};

text.oninput = drafted;
text.onkeydown = (event) => {
  const typing = event.isComposing || event.shiftKey || matchMedia("(pointer: coarse)").matches;
  if (event.key !== "Enter" || typing) return;
  event.preventDefault();
  send();
};

byId("stop").onclick = async () => {
  byId("stop").disabled = true;
  try {
    await ask("api/stop", { body: { session } });
    turn.setAside();
    turn.work(false);
  } catch (error) {
    state("offline", `Not stopped: ${error.message}`);
  } finally {
    byId("stop").disabled = false;
  }
};

addEventListener("online", wakeAll);
document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && wakeAll());

open(session);
flush();
text.focus();
