"use strict";
// Filters the map and fills the panel of a host; without this script the map and tables remain.
(() => {
  const page = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const { pool, signs, said } = data;
  // What many hosts share is in the pool once.
  const whole = ([key, value]) => [key, typeof value === "number" ? pool[value] : value];
  const hosts = Object.fromEntries(Object.entries(data.hosts).map(
    ([name, host]) => [name, Object.fromEntries(Object.entries(host).map(whole))],
  ));
  const groups = new Map(Object.entries(data.groups).map(([code, names]) => [code, new Set(names)]));
  const panel = document.getElementById("panel");
  const body = document.getElementById("panel-body");
  const search = document.getElementById("search");
  const finding = document.getElementById("finding");
  const rack = document.getElementById("rack");
  const matches = document.getElementById("matches");
  const cells = [...document.querySelectorAll("button.host")];
  const racks = [...document.querySelectorAll("[data-rack]")];
  const rows = [...document.querySelectorAll("[data-row]")].map((row) => [row, JSON.parse(row.dataset.row)]);
  const chips = [...document.querySelectorAll("[data-state]")];
  const known = (name) => Object.prototype.hasOwnProperty.call(hosts, name);
  let opener = null;

  // Everything that comes from a host is text, never markup.
  function make(kind, text, ...children) {
    const [name, ...classes] = kind.split(".");
    const box = document.createElement(name);
    box.className = classes.join(" ");
    if (text !== null && text !== undefined) box.textContent = text;
    box.append(...children);
    return box;
  }

  function terms(pairs) {
    const list = make("dl");
    for (const [name, value] of pairs) list.append(make("dt", name), make("dd", value));
    return list;
  }

  function table(heads, lines) {
    const head = make("tr", null, ...heads.map((text) => make("th", text)));
    const filled = lines.map((line) => make("tr", null, ...line.map((cell) => make("td", cell))));
    return make("div.scroll", null, make("table", null, make("thead", null, head), make("tbody", null, ...filled)));
  }

  function findingLine({ code, severity, subject, message, remedy, source }) {
    const line = make(`li.${severity}`, null, make("strong", null, make("code", code)), ` ${subject}: ${message} `);
    if (remedy) line.append(make("span.soft", remedy));
    if (source) line.append(make("span.soft", ` Source: ${source}`));
    return line;
  }

  function checkLine({ code, subject, state, found, expected, severity, remedy, source }) {
    const level = state === "unknown" ? "info" : severity;
    const line = make(`li.${level}`, null, make("strong", null, make("code", code)), ` ${subject}: `);
    line.append(state === "unknown" ? "unknown: " : "found ", found, `, expected ${expected} `);
    if (remedy) line.append(make("span.soft", remedy));
    if (source) line.append(make("span.soft", ` Source: ${source}`));
    return line;
  }

  function section(title, ...children) {
    if (children.length) body.append(make("h3", title), ...children);
  }

  function fill(name) {
    const host = hosts[name];
    document.getElementById("panel-name").textContent = name;
    body.replaceChildren();
    const { site, row, rack: stand } = host.place || {};
    const where = [site, row, stand].filter(Boolean).join(", ");
    const head = make("p", null, make(`span.sign.${host.state}`, signs[host.state]), ` ${said[host.state]}: ${host.why}`);
    body.append(head);
    if (where) body.append(make("p.soft", where));
    if (host.quarantined) {
      const told = host.quarantined;
      const notes = [["message", told.message]];
      if (told.task) notes.unshift(["task", told.task]);
      section("Why it is in quarantine", terms(notes));
    }
    if (host.failed) section("Checks that do not pass", make("ul.findings", null, ...host.failed.map(checkLine)));
    if (host.findings) section("Findings", make("ul.findings", null, ...host.findings.map(findingLine)));
    if (host.excerpts) {
      section("Evidence", ...host.excerpts.flatMap(({ code, origin, text }) => [
        make("p.soft", null, make("code", code), ` ${origin}`), make("pre", text),
      ]));
    }
    if (host.odd) {
      section("Not as its peers", table(["fact", "here", "peers", "hosts"], host.odd.map(
        (odd) => [odd.fact, odd.value, odd.usual, odd.hosts],
      )));
    }
    if (host.measured) {
      section("Measured", table(["check", "of", "found", "expected"], host.measured.map(
        (check) => [check.code, check.subject, check.found, check.expected],
      )));
    }
    if (host.running) {
      section("Replicas", table(["deployment", "model", "engine", "layout", "active"], host.running.map(
        ({ deployment, model, engine, layout, replicas, up }) => [deployment, model, engine, layout, `${up ?? "?"} of ${replicas}`],
      )));
    }
    if (host.pending) {
      section("What a run of the site playbook would change", table(["concern", "changes", "reboot"], host.pending.map(
        ({ concern, changes, reboot }) => [concern, changes, reboot.join("; ")],
      )));
    }
    if (host.last_run) {
      const { run, at, outcome, task, why, applied } = host.last_run;
      const notes = [["run", run], ["outcome", outcome], ["when", at], ["task", task], ["why", why], ["applied", applied.join(", ")]];
      section("Last rollout", terms(notes.filter(([, value]) => value)));
    }
    if (host.checks) {
      const counted = make("details", null, make("summary", `All checks: ${host.checks.length} kinds`), table(
        ["check", "pass", "fail", "do not apply", "unknown"],
        host.checks.map((check) => [check.code, check.passed, check.failed, check.skipped, check.unknown]),
      ));
      body.append(counted);
    }
    if (host.facts) section("Facts", terms(Object.entries(host.facts)));
    section("Documents", ...(host.sources || []).map(
      ({ kind, path, at, age }) => make("p.soft", `${kind}: ${path}${at ? `, of ${at}` : ""}${age ? `, ${age} old` : ""}`),
    ));
    if (!host.sources) section("Documents", make("p.soft", "None: no playbook has left anything of this host."));
  }

  function open(name, from) {
    if (!known(name)) return;
    fill(name);
    for (const cell of cells) {
      if (cell.dataset.host === name) cell.setAttribute("aria-current", "true");
      else cell.removeAttribute("aria-current");
    }
    opener = from || opener;
    panel.hidden = false;
    panel.scrollTop = 0;
    panel.focus();
    const hash = `#host=${encodeURIComponent(name)}`;
    if (location.hash !== hash) history.replaceState(null, "", hash);
  }

  function close() {
    if (panel.hidden) return;
    panel.hidden = true;
    for (const cell of cells) cell.removeAttribute("aria-current");
    history.replaceState(null, "", location.pathname + location.search);
    if (opener) opener.focus();
  }

  function follow() {
    const found = /^#host=(.*)$/.exec(location.hash);
    if (!found) return;
    try {
      open(decodeURIComponent(found[1]), null);
    } catch {
      // A mangled address names no host.
    }
  }

  const texts = new Map(cells.map((cell) => {
    const host = hosts[cell.dataset.host];
    const parts = [cell.dataset.host, host.why, said[host.state], ...Object.values(host.place || {}), ...Object.entries(host.facts || {}).flat()];
    for (const one of host.failed || []) parts.push(one.code, one.found);
    for (const one of host.findings || []) parts.push(one.code, one.message);
    for (const one of host.running || []) parts.push(one.deployment, one.model, one.engine, one.layout);
    return [cell.dataset.host, parts.filter(Boolean).join("\n").toLowerCase()];
  }));

  function filter() {
    const shown = new Set(chips.filter((one) => one.getAttribute("aria-pressed") === "true").map((one) => one.dataset.state));
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const having = finding.value ? groups.get(finding.value) : null;
    const fits = new Set();
    for (const box of racks) {
      let any = false;
      for (const cell of box.querySelectorAll("button.host")) {
        const name = cell.dataset.host;
        const fit = shown.has(hosts[name].state) && (!having || having.has(name))
          && (!rack.value || box.dataset.rack === rack.value)
          && words.every((word) => texts.get(name).includes(word));
        cell.classList.toggle("out", !fit);
        if (fit) fits.add(name);
        any = any || fit;
      }
      box.classList.toggle("out", !any);
    }
    for (const [row, names] of rows) row.hidden = !names.some((name) => fits.has(name));
    const all = fits.size === cells.length;
    page.classList.toggle("filtered", !all);
    matches.textContent = all ? "" : `${fits.size} of ${cells.length} hosts`;
  }

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-host]");
    if (link) {
      event.preventDefault();
      open(link.dataset.host, link);
      return;
    }
    const only = event.target.closest("[data-only]");
    if (only) {
      finding.value = only.dataset.only;
      filter();
      document.getElementById("filters").scrollIntoView();
      return;
    }
    if (!panel.hidden && !panel.contains(event.target)) close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  document.getElementById("close").addEventListener("click", close);
  for (const one of chips) {
    one.addEventListener("click", () => {
      one.setAttribute("aria-pressed", String(one.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  search.addEventListener("input", filter);
  finding.addEventListener("change", filter);
  rack.addEventListener("change", filter);
  window.addEventListener("hashchange", follow);

  // Where the system's choice of colours does not suit, the button overrides it.
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const now = page.dataset.theme || (dark.matches ? "dark" : "light");
    page.dataset.theme = now === "dark" ? "light" : "dark";
  });

  document.getElementById("filters").hidden = false;
  for (const one of document.querySelectorAll(".only")) one.hidden = false;
  follow();
  page.dataset.drawn = "yes";
})();
