"use strict";
// A key presses the button, or follows the link, that names it.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest("input, textarea, select, .scroll")) return;
  const key = event.key.length === 1 ? event.key.toUpperCase() : event.key;
  const target = [...document.querySelectorAll("[data-key]")].find((e) => e.dataset.key === key);
  if (target) {
    event.preventDefault();
    target.click();
  }
});

// An image that cannot be shown must not look as if it were still on its way.
for (const image of document.images) {
  const mark = () => image.classList.add("broken");
  if (image.complete && !image.naturalWidth && image.loading !== "lazy") mark();
  image.addEventListener("error", mark);
}

// A second press while the first is on its way would answer the same question again.
for (const form of document.querySelectorAll("form[method=post]")) {
  form.addEventListener("submit", () => {
    setTimeout(() => document.querySelectorAll("button").forEach((b) => (b.disabled = true)));
  });
}
