"use strict";
(() => {
  const root = document.documentElement;

  // Theme: automatic, light, dark; kept for the next report where the browser allows it.
  const themes = ["automatic", "light", "dark"];
  const button = document.getElementById("theme");
  const kept = () => { try { return localStorage.getItem("bpusim-theme"); } catch { return null; } };
  const setTheme = (name) => {
    if (name === "automatic") delete root.dataset.theme; else root.dataset.theme = name;
    button.querySelector("span").textContent = name;
    try { localStorage.setItem("bpusim-theme", name); } catch { /* a page from a file may have no storage */ }
  };
  button.hidden = false;
  setTheme(themes.includes(kept()) ? kept() : "automatic");
  button.addEventListener("click", () => {
    const now = root.dataset.theme || "automatic";
    setTheme(themes[(themes.indexOf(now) + 1) % themes.length]);
  });

  // Definitions: on hover and focus, away with Escape.
  const tip = document.getElementById("tip");
  let owner = null;
  const show = (el) => {
    const found = document.getElementById("def-" + el.dataset.def);
    if (!found) return;
    owner = el;
    tip.textContent = found.textContent;
    tip.hidden = false;
    const at = el.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const below = at.bottom + 6 + own.height <= innerHeight;
    tip.style.left = Math.max(8, Math.min(at.left, innerWidth - own.width - 8)) + "px";
    tip.style.top = (below ? at.bottom + 6 : Math.max(8, at.top - own.height - 6)) + "px";
  };
  const hide = () => { tip.hidden = true; owner = null; };
  for (const el of document.querySelectorAll("[data-def]")) {
    el.addEventListener("pointerenter", () => show(el));
    el.addEventListener("pointerleave", () => { if (document.activeElement !== el) hide(); });
    el.addEventListener("focus", () => show(el));
    el.addEventListener("blur", hide);
  }
  document.addEventListener("keydown", (e) => { if (e.key === "Escape") hide(); });
  document.addEventListener("scroll", () => { if (owner) hide(); }, { capture: true, passive: true });

  // Tables that sort: by number where cells have one, else by text; equal rows stay in their order.
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    const value = (row, k) => {
      const cell = row.cells[k];
      return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
    };
    heads.forEach((head, k) => head.querySelector("button").addEventListener("click", () => {
      const numbers = body.rows.length > 0 && typeof value(body.rows[0], k) === "number";
      const before = head.getAttribute("aria-sort");
      const way = before === "none" ? (numbers ? "descending" : "ascending") : before === "ascending" ? "descending" : "ascending";
      heads.forEach((h) => h.setAttribute("aria-sort", h === head ? way : "none"));
      const sign = way === "ascending" ? 1 : -1;
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a, k), y = value(b, k);
        return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
      });
      body.append(...rows);
    }));
  }

  // Search: rows that have every word.
  const search = document.getElementById("search");
  if (search) {
    const rows = [...document.getElementById("op-table").tBodies[0].rows];
    const texts = rows.map((r) => r.textContent.toLowerCase());
    const found = document.getElementById("found");
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let n = 0;
      rows.forEach((row, k) => {
        row.hidden = !words.every((w) => texts[k].includes(w));
        n += !row.hidden;
      });
      found.textContent = words.length ? n + " of " + rows.length + " rows" : rows.length + " rows";
    });
  }
})();
