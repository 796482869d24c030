"use strict";
// The studio's page: forms that estimate as they change. Texts of users and of answers are only ever set as text; parts of
// pages come escaped from the server, which made them.
const choices = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const FIELDS = [
  ["model", "Model: folder or ID on the Hub", "wide"], ["instance", "Instance"], ["batch_size", "Batch size"],
  ["sequence_length", "Sequence length"], ["input_length", "Prompt tokens"], ["output_length", "Output tokens"],
  ["tensor_parallel_size", "Cores of a replica"], ["ttft_ms", "Limit: first token, ms"], ["tpot_ms", "Limit: per token, ms"],
];
let view = "estimate", turn = 0, waiting = 0;

function make(tag, parent, text, properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

function fillForm(form) {
  for (const [name, title, kind] of FIELDS) {
    const label = make("label", form, title, { className: kind ?? "" });
    if (name === "instance") {
      const select = make("select", label, undefined, { name });
      make("option", select, "default", { value: "" });
      for (const [group, names] of [["Families", choices.families], ["Instances", choices.instances]]) {
        const options = make("optgroup", select, undefined, { label: group });
        for (const one of names) make("option", options, one, { value: one });
      }
    } else make("input", label, undefined, { name, autocomplete: "off", spellcheck: false, inputMode: name === "model" ? "text" : "decimal" });
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); refresh(); });
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refresh, 400); });
}

const valuesOf = (form) => Object.fromEntries(FIELDS.map(([name]) => [name, form.elements[name].value]));

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  try {
    return await (await fetch(path, options)).json();
  } catch {
    return { error: "The studio does not answer. Start it again: optimum-cli neuron studio" };
  }
}

function addCommand(parent, text) {
  const line = make("div", parent, undefined, { className: "command" });
  make("code", line, text);
  const button = make("button", line, "Copy", { type: "button" });
  button.onclick = async () => { await navigator.clipboard.writeText(text); button.textContent = "Copied"; };
}

function showColumns({ columns, difference_html }) {
  find("difference").innerHTML = difference_html;
  find("columns").replaceChildren();
  for (const { page, command, verdicts, error } of columns) {
    const column = make("div", find("columns"), undefined, { className: "column" });
    if (error) make("p", column, error, { className: "problem" });
    for (const { verdict, text } of verdicts ?? []) make("p", column, text, { className: `verdict ${verdict}` });
    addCommand(column, command);
    if (!page) continue;
    const body = make("div", column);
    body.innerHTML = page.html;
    drawPlots(body, page.plots);
  }
}

function showShelf({ cache, folder, exports, profiles }) {
  find("difference").replaceChildren();
  find("columns").replaceChildren();
  const column = make("div", find("columns"), undefined, { className: "column" });
  make("h2", column, `Exports below ${folder}`);
  const list = make("ul", column, undefined, { className: "list" });
  for (const { name, command } of exports) {
    const item = make("li", list);
    make("a", item, `Profile ${name}`, { href: `profile?name=${encodeURIComponent(name)}`, target: "_blank", rel: "noopener" });
    addCommand(item, command);
  }
  if (!exports.length) make("li", list, "none", { className: "dim" });
  make("h2", column, "Profiles");
  const pages = make("ul", column, undefined, { className: "list" });
  for (const name of profiles) make("a", make("li", pages), name, { href: `profile?name=${encodeURIComponent(name)}`, target: "_blank", rel: "noopener" });
  if (!profiles.length) make("li", pages, "none", { className: "dim" });
  make("h2", column, `Compile cache ${cache.url}, ${cache.size}`);
  addCommand(column, "optimum-cli neuron cache status");
  make("div", column).innerHTML = cache.table_html;
}

async function refresh() {
  clearTimeout(waiting);
  const own = ++turn, first = valuesOf(find("first")), beside = view === "estimate" && find("beside").checked;
  find("second").hidden = !beside;
  find("forms").hidden = view === "shelf";
  find("controls").hidden = view === "shelf";
  find("beside").parentElement.hidden = view !== "estimate";
  if (view !== "shelf" && !first.model) {
    find("columns").replaceChildren();
    find("difference").replaceChildren();
    find("status").textContent = "Enter a model to begin.";
    return;
  }
  document.body.classList.add("busy");
  find("status").textContent = "Estimating ...";
  const forms = beside ? [first, valuesOf(find("second"))] : [first];
  const answer = await (view === "shelf" ? ask("api/shelf") : ask(`api/${view}`, forms));
  if (own !== turn) return;
  document.body.classList.remove("busy");
  find("status").textContent = "";
  if (answer.error) {
    find("difference").replaceChildren();
    find("columns").replaceChildren();
    make("p", find("columns"), answer.error, { className: "problem" });
  } else if (view === "shelf") showShelf(answer);
  else showColumns(answer);
}

fillForm(find("first"));
fillForm(find("second"));
find("beside").onchange = () => {
  if (find("beside").checked && !find("second").elements.model.value)
    for (const [name, value] of Object.entries(valuesOf(find("first")))) find("second").elements[name].value = value;
  refresh();
};
for (const button of document.querySelectorAll("[data-view]")) {
  button.onclick = () => {
    view = button.dataset.view;
    for (const other of document.querySelectorAll("[data-view]")) other.setAttribute("aria-selected", String(other === button));
    refresh();
  };
}
find("first").elements.model.focus();
refresh();
