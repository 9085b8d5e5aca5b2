"use strict";
// Takes over what changed at the server, keeps the reader's place, and says when the server falls silent.
(() => {
  const live = document.getElementById("live");
  live.hidden = false;
  const say = (text, silent) => {
    live.textContent = text;
    live.classList.toggle("silent", silent);
  };

  // Parts are compared with what the server sent before, so that what did not change stays under the reader's eyes.
  const parts = [];
  const take = (now, next) => {
    const open = new Set([...now.querySelectorAll("details[open] > summary")].map((each) => each.textContent));
    now.replaceWith(next);
    for (const summary of next.querySelectorAll("details > summary")) {
      summary.parentElement.open = open.has(summary.textContent);
    }
    next.dispatchEvent(new Event("replaced", { bubbles: true }));
  };

  const update = async () => {
    const answer = await fetch("/", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main");
    const next = [...page.querySelector("main").children];
    while (main.children.length > next.length) main.lastElementChild.remove();
    while (main.children.length < next.length) main.append(document.createElement("section"));
    next.forEach((part, place) => {
      const text = part.outerHTML;
      if (parts[place] !== text) take(main.children[place], part);
      parts[place] = text;
    });
    document.title = page.title;
    document.querySelector("nav ol").replaceWith(page.querySelector("nav ol"));
  };

  let trouble = "";
  let busy = false;
  let again = false;
  const follow = async () => {
    if (busy) { again = true; return; }
    busy = true;
    do {
      again = false;
      try {
        await update();
        say(trouble ? `Not up to date: ${trouble}` : "Live", Boolean(trouble));
      } catch {
        say("The server does not answer; this is the last that it said.", true);
      }
    } while (again);
    busy = false;
  };

  const events = new EventSource("/events");
  events.addEventListener("state", (event) => {
    trouble = JSON.parse(event.data).trouble;
    follow();
  });
  events.addEventListener("error", () => say("The server does not answer; this is the last that it said.", true));
})();
