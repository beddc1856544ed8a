"use strict";
(() => {
  const tip = document.getElementById("tip");
  let shown = null;
  let timer = 0;

  function show(mark) {
    clearTimeout(timer);
    shown = mark;
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const point = mark.querySelector(".ring").getBoundingClientRect();
    const box = tip.getBoundingClientRect();
    const room = document.documentElement.clientWidth - box.width - 8;
    const left = Math.max(8, Math.min(point.left + point.width / 2 - box.width / 2, room));
    const above = point.top - box.height - 4;
    tip.style.left = `${left + window.scrollX}px`;
    tip.style.top = `${(above < 4 ? point.bottom + 4 : above) + window.scrollY}px`;
  }

  function hide() {
    clearTimeout(timer);
    shown = null;
    tip.hidden = true;
  }

  function hideSoon() {
    clearTimeout(timer);
    timer = setTimeout(hide, 150);
  }

  function target(marks, mark, key) {
    const series = Number(mark.dataset.series);
    const index = Number(mark.dataset.index);
    const own = marks
      .filter((one) => one.dataset.series === mark.dataset.series)
      .sort((a, b) => Number(a.dataset.index) - Number(b.dataset.index));
    const names = [...new Set(marks.map((one) => Number(one.dataset.series)))];
    const along = own.indexOf(mark) + { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[key];
    if (key === "Home") return own[0];
    if (key === "End") return own[own.length - 1];
    if (names.length === 1 || key === "ArrowRight" || key === "ArrowLeft") return own[along];
    const other = names[names.indexOf(series) + (key === "ArrowDown" ? 1 : -1)];
    const theirs = marks.filter((one) => Number(one.dataset.series) === other);
    return theirs.find((one) => Number(one.dataset.index) === index) || theirs[theirs.length - 1];
  }

  const keys = ["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp", "Home", "End"];
  for (const layer of document.querySelectorAll("svg.marks")) {
    const marks = [...layer.querySelectorAll(".mark")];
    for (const mark of marks) {
      mark.addEventListener("pointerenter", () => show(mark));
      mark.addEventListener("pointerleave", hideSoon);
      mark.addEventListener("click", () => mark.focus());
      mark.addEventListener("focus", () => show(mark));
      mark.addEventListener("blur", hide);
    }
    layer.addEventListener("keydown", (event) => {
      const mark = event.target.closest(".mark");
      if (!mark || !keys.includes(event.key)) return;
      event.preventDefault();
      const next = target(marks, mark, event.key);
      if (!next) return;
      mark.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }
  tip.addEventListener("pointerenter", () => clearTimeout(timer));
  tip.addEventListener("pointerleave", hideSoon);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && shown) hide();
  });

  for (const button of document.querySelectorAll("button[data-copies]")) {
    const source = document.getElementById(button.dataset.copies);
    const said = document.getElementById(`${button.dataset.copies}-said`);
    button.hidden = false;
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(source.textContent);
        said.textContent = "Copied.";
      } catch {
        getSelection().selectAllChildren(source);
        said.textContent = "Selected: press Ctrl+C or Command+C.";
      }
    });
  }

  function choose(mark) {
    const panel = document.getElementById("price-panel");
    const key = mark.dataset.key;
    if (!panel || key === undefined) return;
    for (const one of panel.querySelectorAll("[data-price]")) one.hidden = one.dataset.price !== key;
  }

  for (const mark of document.querySelectorAll(".mark.price")) mark.addEventListener("focus", () => choose(mark));

  const annex = document.querySelector("details.annex");
  const unfold = () => {
    const id = decodeURIComponent(location.hash.slice(1));
    const target = id && document.getElementById(id);
    if (!target || !annex.contains(target) || annex.open) return;
    annex.open = true;
    target.scrollIntoView();
  };
  let folded = false;
  addEventListener("hashchange", unfold);
  addEventListener("beforeprint", () => {
    folded = !annex.open;
    annex.open = true;
  });
  addEventListener("afterprint", () => {
    if (folded) annex.open = false;
  });
  unfold();
})();
