"use strict";
// Offers the other colour scheme, shows the numbers under the pointer, copies settings, and says where a table goes on.
(() => {
  const root = document.documentElement;

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const scheme = () => root.dataset.scheme || (dark.matches ? "dark" : "light");
  const button = document.getElementById("scheme");
  const label = () => { button.textContent = scheme() === "dark" ? "Light colours" : "Dark colours"; };
  button.addEventListener("click", () => {
    root.dataset.scheme = scheme() === "dark" ? "light" : "dark";
    label();
  });
  dark.addEventListener("change", label);
  button.hidden = false;
  label();

  const made = (name, className) => Object.assign(document.createElement(name), { className });
  const rounded = (value) => String(Number(value.toPrecision(4)));
  const percent = (value) => `${(100 * value).toFixed(1)} %`;

  // The place among rising numbers that is nearest to a value; for steps the last one that is not above it.
  const nearest = (numbers, value, step) => {
    let after = numbers.findIndex((number) => number > value);
    if (after < 0) after = numbers.length;
    if (after === 0) return step ? -1 : 0;
    const closer = after < numbers.length && numbers[after] - value < value - numbers[after - 1];
    return !step && closer ? after : after - 1;
  };

  // Each kind of chart says where the cursor stands (a share of the width) and what to write beside it.
  const kinds = {
    curves: (data) => (x) => {
      const span = data.to - data.from;
      const points = [...new Set(data.lines.flatMap((line) => line.x))].sort((one, other) => one - other);
      const at = points[nearest(points, data.from + x * span, false)];
      const lines = data.lines.map((line) => {
        const value = line.y[nearest(line.x, at, line.step)];
        const text = value === undefined ? "–" : data.percent ? percent(value) : rounded(value);
        return data.lines.length > 1 ? `${line.name}: ${text}` : text;
      });
      return { at: (at - data.from) / span, lines: [`${data.across} ${at}`, ...lines] };
    },
    bars: (data) => (x) => {
      const count = data.names.length;
      const place = Math.min(count - 1, Math.floor(x * count));
      const lines = data.lines.map((line) => `${line.name}: ${line.y[place]}`);
      return { at: (place + 0.5) / count, lines: [`${data.across} ${data.names[place]}`, ...lines] };
    },
    heat: (data, area) => {
      const image = new Image();
      let pixels = null;
      image.addEventListener("load", () => {
        const canvas = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height });
        const context = canvas.getContext("2d", { willReadFrequently: true });
        context.drawImage(image, 0, 0);
        pixels = context.getImageData(0, 0, image.width, image.height).data;
      });
      image.src = area.querySelector(".heat").style.maskImage.slice(5, -2);
      return (x, y) => {
        const column = Math.min(data.columns.length - 1, Math.floor(x * data.columns.length));
        const row = Math.min(data.rows.length - 1, Math.floor(y * data.rows.length));
        const strength = pixels ? pixels[4 * (row * data.columns.length + column) + 3] / 255 : 0;
        const share = `took part: ${(100 * strength * data.top).toFixed(0)} %`;
        return { at: (column + 0.5) / data.columns.length, lines: [`${data.across} ${data.columns[column]}`, data.rows[row], share] };
      };
    },
  };

  // What a part of the page needs once it is there: a page that is served brings new parts.
  const furnish = (part) => {
    for (const area of part.querySelectorAll(".area")) {
      const data = JSON.parse(area.querySelector("script").textContent);
      const read = kinds[data.kind](data, area);
      const cursor = made("div", "cursor");
      const tip = made("div", "tip");
      const hide = () => { cursor.hidden = tip.hidden = true; };
      hide();
      area.append(cursor, tip);
      area.addEventListener("pointermove", (event) => {
        const box = area.getBoundingClientRect();
        const share = (value) => Math.min(1, Math.max(0, value));
        const { at, lines } = read(share((event.clientX - box.left) / box.width), share((event.clientY - box.top) / box.height));
        tip.replaceChildren(...lines.map((text) => Object.assign(made("p", ""), { textContent: text })));
        cursor.hidden = tip.hidden = false;
        cursor.style.left = `${100 * at}%`;
        const left = at * box.width + 12;
        tip.style.left = `${Math.max(0, left + tip.offsetWidth > box.width ? left - tip.offsetWidth - 24 : left)}px`;
      });
      area.addEventListener("pointerleave", hide);
    }

    for (const table of part.querySelectorAll(".table")) {
      const cue = () => {
        const more = table.scrollWidth - table.clientWidth - table.scrollLeft > 4;
        table.classList.toggle("more", more);
        table.previousElementSibling.querySelector(".cue").hidden = !more;
      };
      table.addEventListener("scroll", cue);
      new ResizeObserver(cue).observe(table);
    }

    for (const copy of part.querySelectorAll(".copy")) {
      const text = copy.nextElementSibling;
      copy.hidden = false;
      copy.addEventListener("click", async () => {
        try {
          await navigator.clipboard.writeText(text.textContent);
          copy.textContent = "Copied";
        } catch {
          getSelection().selectAllChildren(text); // where a page may not write to the clipboard, the reader can
        }
      });
    }
  };
  furnish(document);
  document.addEventListener("replaced", (event) => furnish(event.target));
})();
