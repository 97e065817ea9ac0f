// Tables that sort, lists with pages, the panel of an image, and the page that compares. Names and
// ids are untrusted: they enter the page as text nodes, never as HTML.
"use strict";

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "circle", "path", "title", "text"].includes(tag);
  const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const named = (text) => make("bdi", { class: "name" }, text);
const number = (value, digits = 3) => (value === null ? "–" : value.toFixed(digits));
const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);

// ---- tables that sort

function sortValue(row, column) {
  const text = row.cells[column].textContent.trim();
  const value = parseFloat(text.replace(/,/g, ""));
  return row.cells[column].classList.contains("number") ? (isNaN(value) ? -Infinity : value) : text.toLowerCase();
}

function sortBy(table, column) {
  const heads = [...table.tHead.rows[0].cells];
  const numeric = heads[column].classList.contains("number");
  const before = heads[column].getAttribute("aria-sort");
  // The first click shows what is asked for most: the largest numbers, or names from A to Z.
  const order = before ? (before === "ascending" ? "descending" : "ascending") : numeric ? "descending" : "ascending";
  heads.forEach((head) => head.removeAttribute("aria-sort"));
  heads[column].setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows].map((row) => [sortValue(row, column), row]);
  rows.sort(([a], [b]) => sign * (numeric ? (a === b ? 0 : a - b) : a.localeCompare(b, undefined, { numeric: true })));
  table.tBodies[0].append(...rows.map(([, row]) => row));
  table.dispatchEvent(new Event("sorted"));
}

function makeSortable(table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (head.classList.contains("plot")) return;
    const button = make("button", { type: "button" }, ...head.childNodes);
    button.addEventListener("click", () => sortBy(table, column));
    head.append(button);
  });
}

// ---- lists and tables with pages

function makePaged(list) {
  const size = Number(list.dataset.page);
  const items = () => [...(list.tBodies ? list.tBodies[0].rows : list.children)];
  if (items().length <= size) return;
  const told = make("span", { role: "status" });
  const [back, next] = ["Previous", "Next"].map((text) => make("button", { type: "button" }, text));
  let first = 0;
  const show = (from) => {
    first = from;
    const all = items();
    all.forEach((item, place) => { item.hidden = place < first || place >= first + size; });
    told.textContent = `${first + 1} to ${Math.min(first + size, all.length)} of ${all.length}`;
    back.disabled = first === 0;
    next.disabled = first + size >= all.length;
  };
  back.addEventListener("click", () => show(first - size));
  next.addEventListener("click", () => show(first + size));
  list.addEventListener("sorted", () => show(0));
  (list.closest(".scroll") || list).after(make("div", { class: "pager" }, back, told, next));
  show(0);
}

function table(label, heads, rows, sortable = true) {
  const head = heads.map(([content, kind]) => make("th", { scope: "col", class: kind }, ...[content].flat()));
  const made = make("table", { "data-page": "100" }, make("caption", {}, label),
    make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  if (sortable) makeSortable(made);
  return make("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, made);
}

function row(name, ...cells) {
  const rest = cells.map((cell) => make("td", { class: typeof cell === "string" ? "number" : "" }, cell));
  return make("tr", {}, make("th", { scope: "row" }, name), ...rest);
}

// ---- the panel of an image; its address is #image=KEY

function partOf(key, parts) { // as in data.py
  let number = 0;
  for (const sign of key) number = (number * 31 + sign.charCodeAt(0)) % 1000003;
  return number % parts;
}

function load(name) {
  return new Promise((resolve, reject) => {
    if (window[name]) return resolve(window[name]);
    const tag = make("script", { src: `${name}.js` });
    tag.addEventListener("load", () => (window[name] ? resolve(window[name]) : reject()));
    tag.addEventListener("error", reject);
    document.head.append(tag);
  });
}

function explanation(name, [, , score, , similarity, debiased, own, rest, prompts], open) {
  const numbers = (...values) => values.map((value) => (value === null ? "" : number(value)));
  const rows = [
    row("its own prompt", ...numbers(similarity, debiased, null, own)),
    ...prompts.map(([text, ...values]) => row(named(text), ...numbers(...values))),
    row("all other prompts and terms", ...numbers(null, null, null, rest)),
    row("final score (the sum)", ...numbers(null, null, null, score)),
  ];
  const heads = [["prompt", ""], ["cosine similarity", "number"], ["debiased", "number"], ["weight", "number"], ["adds", "number"]];
  const made = make("details", {}, make("summary", {}, "Score of ", make("bdi", {}, name.slice(0, 60)), `: ${number(score)}`),
    table(`How the score of ${name.slice(0, 60)} comes about (no units)`, heads, rows, false));
  made.open = open;
  return made;
}

function classRows(image, classes) {
  return image.classes.map(([place, present, score, probability, similarity, debiased]) => {
    const [name, page] = classes[place];
    const truth = image.truth ? [image.truth.includes(name)] : [];
    const judged = truth.map((there) => make("span", { class: there === present ? "right" : "wrong" }, there ? "labelled" : "not labelled"));
    return row(make("a", { href: page }, named(name)), make("span", {}, present ? "present" : "absent"), ...judged,
      percent(probability), number(score), number(similarity), number(debiased));
  });
}

// Only sparc-dist view adds the bar that says where the originals are.
function original(image) {
  const place = document.querySelector("nav[data-images]")?.dataset.images;
  return place ? [make("p", {}, make("a", { href: `${place}?id=${encodeURIComponent(image.id)}` }, "Original image"))] : [];
}

function panelContent(image, { method, classes }) {
  const truth = image.truth === null ? "Its labels are unknown." : `Labels: ${image.truth.join(", ") || "none"}.`;
  const heads = [["class", ""], ["decision", ""], ...(image.truth ? [["truth", ""]] : []),
    ["probability (%)", "number"], [`score, ${method}`, "number"], ["cosine similarity", "number"], ["debiased", "number"]];
  const explained = image.classes.filter((found) => found[8].length || found[6]);
  const wanted = explained.findIndex(([place]) => classes[place][0] === document.body.dataset.class);
  if (wanted > 0) explained.unshift(...explained.splice(wanted, 1));
  return [
    make("h2", { id: "panel-title" }, "Image ", named(image.id)),
    image.src ? make("img", { src: image.src, alt: `image ${image.id.slice(0, 60)}` }) : make("p", { class: "warning" }, `No picture: ${image.error}`),
    ...(image.id.length > 60 ? [make("p", {}, "Full id: ", make("bdi", {}, image.id))] : []),
    make("p", {}, truth),
    ...original(image),
    ...(explained.length ? [make("h3", {}, "What decided")] : []),
    ...explained.map((found, place) => explanation(classes[found[0]][0], found, place === 0)),
    make("h3", {}, "All classes"),
    table("All classes of the image, the highest score first", heads, classRows(image, classes)),
  ];
}

async function showImage() {
  const panel = document.getElementById("panel");
  const key = (location.hash.match(/^#image=(.+)$/) || [])[1];
  if (!key) return panel.close();
  const content = document.getElementById("panel-content");
  try {
    const data = await load(`images-${partOf(key, Number(document.body.dataset.parts))}`);
    content.replaceChildren(...panelContent(data.images.find((image) => image.key === key), data));
  } catch {
    content.replaceChildren(make("h2", { id: "panel-title" }, "This image is not part of the report."));
  }
  if (!panel.open) panel.showModal();
}

function startPanel(panel) {
  panel.querySelector(".close").addEventListener("click", () => panel.close());
  panel.addEventListener("close", () => {
    if (location.hash.startsWith("#image=")) history.replaceState(null, "", location.pathname + location.search);
  });
  window.addEventListener("hashchange", showImage);
  if (location.hash.startsWith("#image=")) showImage();
}

// ---- the page that compares; its address is #a=0&b=2

const at = (value) => 10 + 1.8 * value;

function axis() {
  const texts = [0, 25, 50, 75, 100].map((value) => make("text", { x: at(value), y: 12, "text-anchor": "middle" }, String(value)));
  return make("svg", { class: "dots", viewBox: "0 0 200 14", "aria-hidden": "true" }, ...texts);
}

function dots(a, b) {
  return make("svg", { class: "dots", viewBox: "0 0 200 20", role: "img", "aria-label": `AP (%): A ${number(a, 1)}, B ${number(b, 1)}` },
    make("path", { class: "grid", d: "M10 0V20M55 0V20M100 0V20M145 0V20M190 0V20" }),
    make("path", { class: "tick", d: `M${at(a)} 10H${at(b)}` }),
    make("circle", { class: "a", cx: at(a), cy: 10, r: 5 }), make("circle", { class: "b", cx: at(b), cy: 10, r: 4 }));
}

function comparedClasses(a, b) {
  const other = new Map(b.ap);
  const both = a.ap.filter(([name, ap]) => ap !== null && (other.get(name) ?? null) !== null).map(([name, ap]) => [name, ap, other.get(name)]);
  if (!both.length) return make("p", {}, "A and B have no class with an AP in common.");
  both.sort((x, y) => Math.abs(y[2] - y[1]) - Math.abs(x[2] - x[1]));
  const rows = both.map(([name, x, y]) => row(named(name), number(x, 1), number(y, 1), (y - x > 0 ? "+" : "") + number(y - x, 1), dots(x, y)));
  const heads = [["class", ""], ["A (%)", "number"], ["B (%)", "number"], ["B − A (points)", "number"], [["AP (%): ○ A, ● B", axis()], "plot"]];
  return table("Average precision (AP) of each class, the largest difference first", heads, rows);
}

// Of a verdict on an image: the classes that are present or likely, as [place, probability, present].
function verdict(unit, image, method) {
  return new Map((image[3][method] || []).map(([place, ...judged]) => [unit.classes[place], judged]));
}

const chance = (found) => (found ? percent(found[0]) : "below 5 %");

// The common classes on which two verdicts differ, the largest difference of probabilities first.
function differences(x, y, common) {
  const names = [...new Set([...x.keys(), ...y.keys()])].filter((name) => common.has(name));
  const found = names.map((name) => [name, x.get(name), y.get(name)]).filter(([, p, q]) => Boolean(p && p[1]) !== Boolean(q && q[1]));
  const size = ([, p, q]) => Math.abs(((p && p[0]) || 0) - ((q && q[0]) || 0));
  return found.map((one) => [size(one), ...one]).sort((one, other) => other[0] - one[0]);
}

function only(side, found, slug, key) {
  const names = found.map(([, name, p, q]) => `${name} (A ${chance(p)}, B ${chance(q)})`).join(", ") || "nothing";
  const told = `Only ${side}`;
  return make("span", {}, slug ? make("a", { href: `${slug}/index.html#image=${key}` }, told) : told, `: ${names}`);
}

function disagreements(a, b, units) {
  const [ours, theirs] = [units[a.unit], units[b.unit]];
  const [common, shown] = [new Set(theirs.classes), new Map(theirs.images.map((image) => [image[0], image]))];
  const own = new Set(ours.classes);
  common.forEach((name) => own.has(name) || common.delete(name));
  const pairs = ours.images.filter(([id]) => shown.has(id)).map((image) => [image, shown.get(image[0])]);
  const found = pairs.map(([x, y]) => [x, y, differences(verdict(ours, x, a.method), verdict(theirs, y, b.method), common)]);
  const different = found.filter(([, , classes]) => classes.length).sort((one, other) => other[2][0][0] - one[2][0][0]);
  const items = different.map(([[id, key, src], [, otherKey, otherSrc], classes]) => make("li", {},
    src || otherSrc ? make("img", { src: src || otherSrc, alt: `image ${id.slice(0, 60)}`, loading: "lazy" }) : "", named(id),
    only("A", classes.filter(([, , p]) => p && p[1]), ours.slug, key), only("B", classes.filter(([, , , q]) => q && q[1]), theirs.slug, otherKey)));
  return [make("p", {}, `A and B decide differently on ${items.length} of the ${pairs.length} images that both show; the largest difference of probabilities comes first.`),
    make("ul", { class: "images", "data-page": "24" }, ...items)];
}

// Says which classes only one side has; nothing if they have the same.
function uncommon(a, b, units) {
  const [ours, theirs] = [a, b].map((side) => new Set(side.unit === null ? side.ap.map(([name]) => name) : units[side.unit].classes));
  if (!ours.size || !theirs.size) return [];
  const missing = [["A", ours, theirs], ["B", theirs, ours]].map(([side, these, those]) => [side, [...these].filter((name) => !those.has(name))]);
  const told = missing.filter(([, names]) => names.length).map(([side, names]) => `only ${side} has ${names.slice(0, 20).join(", ")}${names.length > 20 ? ` and ${names.length - 20} more` : ""}`);
  return told.length ? [make("p", {}, `Classes that are not compared: ${told.join("; ")}.`)] : [];
}

function compareSides({ sides, units, notes }, form) {
  const [a, b] = ["a", "b"].map((side) => sides[form.elements[side].value]);
  const parts = [make("h2", {}, "Classes"), comparedClasses(a, b), ...uncommon(a, b, units), make("h2", {}, "Images on which they disagree")];
  if (a.unit === null || b.unit === null || a === b || a.dataset !== b.dataset) {
    parts.push(make("p", {}, "Images are compared between two methods that decide (SPARC, duo), two backbones or two runs, of one data set."));
  } else parts.push(...disagreements(a, b, units));
  if (notes.length) parts.push(make("h2", {}, "What cannot be compared"), make("ul", { class: "notes", "data-page": "24" }, ...notes.map((note) => make("li", {}, note))));
  const out = document.getElementById("compared");
  out.replaceChildren(...parts);
  out.querySelectorAll("[data-page]").forEach(makePaged);
}

function startCompare(form) {
  const { sides } = window.compare;
  const asked = new URLSearchParams(location.hash.slice(1));
  const deciding = sides.findIndex((side, place) => place && side.decides);
  for (const [name, usual] of [["a", 0], ["b", Math.max(deciding, 1)]]) {
    form.elements[name].append(...sides.map((side, place) => make("option", { value: place }, side.name.slice(0, 120))));
    form.elements[name].value = sides[asked.get(name)] ? asked.get(name) : usual;
  }
  form.addEventListener("change", () => {
    history.replaceState(null, "", `#a=${form.elements.a.value}&b=${form.elements.b.value}`);
    compareSides(window.compare, form);
  });
  compareSides(window.compare, form);
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
document.querySelectorAll("[data-page]").forEach(makePaged);
const panel = document.getElementById("panel");
if (panel) startPanel(panel);
const form = document.getElementById("compare");
if (form) startCompare(form);
