"use strict";
// Draws bars on lanes over time, for the pages of profiles and of kernels. The data of the page are in #data.
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip");
const LEFT = 150, RIGHT = 12, LANE = 24, GAP = 6, AXIS = 28;

function element(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function inTime(us) {
  const [unit, length] = us >= 1e6 ? ["s", 1e6] : us >= 1e3 ? ["ms", 1e3] : ["us", 1];
  return `${Number((us / length).toPrecision(4))} ${unit}`;
}

function inPrefix(value, unit) {
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [length, prefix] = steps.find(([size]) => value >= size) || [1, ""];
  return `${Number((value / length).toPrecision(3))} ${prefix}${unit}`;
}

function showTip(event, text) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  const below = event.clientY + 18;
  tip.style.top = `${below + box.height > innerHeight ? event.clientY - box.height - 12 : below}px`;
}

document.addEventListener("mousemove", (event) => {
  const about = event.target.closest("[data-tip]");
  if (about) showTip(event, about.dataset.tip);
  else tip.hidden = true;
});

// Steps of an axis: about `wanted` of them, at round numbers.
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough));
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high * (1 + 1e-9); at += step) found.push(at);
  return found;
}

// Bars on lanes over a common axis of time, with zoom: `bars` are {lane, begin, end, bound, label, tip, group}.
// A click on a bar calls `picked` with its group; bars of a group have it as data-group.
function drawLanes(place, lanes, bars, whole, picked) {
  let range = whole;
  function draw() {
    place.replaceChildren();
    const width = Math.max(place.clientWidth, 480), height = lanes.length * (LANE + GAP) + AXIS;
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
      "aria-label": `${lanes.join(", ")} over time` }, place);
    const scale = (width - LEFT - RIGHT) / (range[1] - range[0]);
    const x = (time) => LEFT + (time - range[0]) * scale;
    const bottom = height - AXIS;
    lanes.forEach((name, lane) => {
      const y = lane * (LANE + GAP);
      element("text", { x: 0, y: y + LANE / 2 + 4, class: "strong" }, svg, name);
      element("rect", { x: LEFT, y, width: width - LEFT - RIGHT, height: LANE, class: "lane" }, svg);
    });
    for (const at of ticks(range[0], range[1], (width - LEFT) / 130)) {
      element("line", { x1: x(at), x2: x(at), y1: 0, y2: bottom, class: "grid" }, svg);
      const anchor = x(at) > width - 40 ? "end" : x(at) < LEFT + 20 ? "start" : "middle";
      element("text", { x: x(at), y: bottom + 18, "text-anchor": anchor }, svg, at === 0 ? "0" : inTime(at));
    }
    for (const bar of bars) {
      if (bar.end < range[0] || bar.begin > range[1]) continue;
      const from = Math.max(x(bar.begin), LEFT), to = Math.min(x(bar.end), width - RIGHT);
      const y = bar.lane * (LANE + GAP);
      // A hair of space between neighbors that are wide enough to be told apart.
      const wide = Math.max(to - from - (to - from > 4 ? 1 : 0), 0.75);
      element("rect", { x: from, y, width: wide, height: LANE, rx: wide > 6 ? 3 : 0,
        class: `b-${data.bounds[bar.bound]}`, "data-tip": bar.tip, "data-group": bar.group ?? "" }, svg);
      if (bar.label && wide > bar.label.length * 7.2 + 10) {
        element("text", { x: from + wide / 2, y: y + LANE / 2 + 4, "text-anchor": "middle",
          class: `on on-${data.bounds[bar.bound]}` }, svg, bar.label);
      }
    }
    zoomable(svg, width, height, bottom, (from, to) => {
      range = [range[0] + (from - LEFT) / scale, range[0] + (to - LEFT) / scale];
      draw();
    }, picked);
    svg.addEventListener("dblclick", () => { range = whole; draw(); });
  }
  draw();
  return draw;
}

function zoomable(svg, width, height, bottom, zoomed, picked) {
  let from = null, brush = null;
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) * width / box.width, LEFT), width - RIGHT);
  };
  svg.addEventListener("pointerdown", (event) => {
    from = at(event);
    svg.setPointerCapture(event.pointerId);
    brush = element("rect", { x: from, y: 0, width: 0, height: bottom, class: "brush" }, svg);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = at(event);
    brush.setAttribute("x", Math.min(from, to));
    brush.setAttribute("width", Math.abs(to - from));
  });
  svg.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const ends = [from, at(event)].sort((a, b) => a - b);
    from = null;
    brush.remove();
    if (ends[1] - ends[0] > 5) zoomed(...ends);
    else if (picked) {
      const bar = document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-group]");
      if (bar) picked(bar.dataset.group);
    }
  });
}
