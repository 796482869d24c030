// Draws the timeline, the engines inside a call and the roofline of a profile; sorts and filters its table.
function timelineBars() {
  return data.segments.map(([core, graph, begin, end, count, bound]) => ({
    lane: core, begin, end, bound, label: data.graphs[graph],
    tip: `${data.graphs[graph]}${count > 1 ? `, ${count} calls` : ""}\n${inTime(end - begin)}, begins at ${inTime(begin)}\n`
      + `limited by ${data.bounds[bound]}`,
  }));
}

function insideBars(one) {
  const engines = Object.values(data.engines);
  const launch = data.bounds.indexOf("launch");
  const about = (index) => {
    const [operator, path, line, bound, time] = one.operators[index];
    return [operator, path, line, `${inTime(time)}, bound by ${data.bounds[bound]}`].filter(Boolean).join("\n");
  };
  const label = (index) => one.operators[index][0].split(".").pop();
  const used = engines.map((_, engine) => engine).filter((engine) => one.lanes.some((lane) => lane[0] === engine));
  const bars = [{ lane: 0, begin: 0, end: one.launch_us, bound: launch, label: "launch",
    tip: `launch of the graph\n${inTime(one.launch_us)}` }];
  one.operators.forEach((operator, index) => {
    if (operator[4]) {
      bars.push({ lane: 0, begin: one.windows[index], end: one.windows[index] + operator[4], bound: operator[3],
        label: label(index), tip: about(index) });
    }
  });
  // On its own lane an engine has its own color.
  const colors = Object.keys(data.engines).map((name) => ({ tensor: 0, dma: 1, vector: 2, link: 3 })[name]);
  for (const [engine, index, begin, time] of one.lanes) {
    bars.push({ lane: 1 + used.indexOf(engine), begin, end: begin + time, bound: colors[engine], label: label(index),
      tip: `${engines[engine]}, ${inTime(time)}\n${about(index)}` });
  }
  return [["operators", ...used.map((engine) => engines[engine])], bars];
}

function drawInside() {
  const tabs = document.getElementById("tabs"), place = document.getElementById("lanes");
  let redraw = () => {};
  data.inside.forEach((one, number) => {
    const button = document.createElement("button");
    button.textContent = one.graph;
    button.title = one.model;
    button.addEventListener("click", () => {
      for (const other of tabs.children) other.setAttribute("aria-selected", other === button);
      redraw = drawLanes(place, ...insideBars(one), [0, one.device_us]);
    });
    tabs.appendChild(button);
    if (number === 0) button.click();
  });
  return () => redraw();
}

// Engines of a kernel have the colors of the engines of a call.
const KERNEL_BOUNDS = { tensor: "compute", dma: "DMA", sync: "launch" };

function kernelBars(one) {
  return one.events.map(([engine, opcode, line, begin, time]) => ({
    lane: engine, begin, end: begin + time, bound: data.bounds.indexOf(KERNEL_BOUNDS[one.engines[engine]] || "vector"),
    label: opcode, tip: `${opcode} on ${one.engines[engine]}\n${one.lines[line]}\n${inTime(time)}, begins at ${inTime(begin)}`,
  }));
}

function drawKernels() {
  const tabs = document.getElementById("kernel-tabs"), place = document.getElementById("kernel-lanes");
  let redraw = () => {};
  data.kernels.forEach((one, number) => {
    const button = document.createElement("button");
    button.textContent = one.name;
    button.addEventListener("click", () => {
      for (const other of tabs.children) other.setAttribute("aria-selected", other === button);
      redraw = drawLanes(place, one.engines, kernelBars(one), [0, one.total_us]);
    });
    tabs.appendChild(button);
    if (number === 0) button.click();
  });
  return () => redraw();
}

function drawRoof() {
  const place = document.getElementById("roof"), machine = data.machine;
  place.replaceChildren();
  const onRoof = data.points.filter((point) => point[3] !== null), offRoof = data.points.filter((p) => p[3] === null);
  const width = Math.max(place.clientWidth, 480), height = 430, left = 92, bottom = height - 46;
  const strip = offRoof.length ? 150 : 0, right = width - RIGHT - strip;
  const ridge = machine.flops / machine.dma;
  const log = Math.log10;
  const xs = [Math.floor(Math.min(log(0.1), ...onRoof.map((p) => log(p[3])))),
    Math.ceil(Math.max(log(ridge) + 1, ...onRoof.map((p) => log(p[3]))))];
  const ys = [Math.floor(Math.min(log(machine.flops) - 4, ...data.points.map((p) => log(p[4])))),
    Math.ceil(log(machine.flops) + 0.1)];
  const x = (value) => left + (log(value) - xs[0]) / (xs[1] - xs[0]) * (right - left);
  const y = (value) => bottom - (log(value) - ys[0]) / (ys[1] - ys[0]) * (bottom - 10);
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": "operations per second over operations for each byte" }, place);
  for (let power = xs[0]; power <= xs[1]; power += 1) {
    element("line", { x1: x(10 ** power), x2: x(10 ** power), y1: 10, y2: bottom, class: "grid" }, svg);
    element("text", { x: x(10 ** power), y: bottom + 18, "text-anchor": "middle" }, svg, Number((10 ** power).toPrecision(1)));
  }
  for (let power = ys[0]; power <= ys[1]; power += 1) {
    element("line", { x1: left, x2: right, y1: y(10 ** power), y2: y(10 ** power), class: "grid" }, svg);
    element("text", { x: left - 10, y: y(10 ** power) + 4, "text-anchor": "end" }, svg, inPrefix(10 ** power, "FLOP/s"));
  }
  element("text", { x: (left + right) / 2, y: bottom + 40, "text-anchor": "middle" }, svg, "operations for each byte read from HBM");
  const slope = (rate) => {
    const from = Math.max(10 ** xs[0], 10 ** ys[0] / rate), to = machine.flops / rate;
    return `M${x(from)},${y(from * rate)} L${x(to)},${y(machine.flops)}`;
  };
  element("path", { d: slope(machine.hbm), class: "roof hbm" }, svg);
  element("path", { d: `${slope(machine.dma)} L${right},${y(machine.flops)}`, class: "roof" }, svg);
  element("text", { x: right - 6, y: y(machine.flops) - 8, "text-anchor": "end", class: "strong" }, svg,
    `${inPrefix(machine.flops, "FLOP/s")}, 16-bit peak of a core`);
  const foot = Math.max(10 ** xs[0], 10 ** ys[0] / machine.dma), angle = -Math.atan2(
    y(foot * machine.dma) - y(machine.flops), x(ridge) - x(foot)) * 180 / Math.PI;
  for (const [rate, name, shift] of [[machine.dma, "DMA", 16], [machine.hbm, "HBM", -8]]) {
    const along = Math.sqrt(foot * machine.flops / rate), px = x(along), py = y(along * rate);
    element("text", { x: px, y: py + shift, transform: `rotate(${angle} ${px} ${py})`, "text-anchor": "middle",
      class: name === "DMA" ? "strong" : "" }, svg, `${name} ${inPrefix(rate, "B/s")}`);
  }
  if (strip) {
    element("rect", { x: right + 40, y: 10, width: strip - 40, height: bottom - 10, class: "lane" }, svg);
    element("text", { x: right + 20 + strip / 2, y: bottom + 18, "text-anchor": "middle" }, svg, "no HBM reads");
  }
  for (const point of [...data.points].sort((a, b) => b[5] - a[5])) {
    const [operator, path, graph, intensity, rate, share, bound] = point;
    const cx = intensity === null ? right + 20 + strip / 2 : x(intensity);
    element("circle", { cx, cy: y(rate), r: 3 + 26 * Math.sqrt(share), class: `b-${data.bounds[bound]}`,
      "data-tip": [operator, path, graph, `${(100 * share).toFixed(1)} % of the time, bound by ${data.bounds[bound]}`,
        `${inPrefix(rate, "FLOP/s")}${intensity === null ? "" : `, ${Number(intensity.toPrecision(3))} operations for each byte`}`,
      ].filter(Boolean).join("\n") }, svg);
  }
}

function makeTableWork() {
  const table = document.getElementById("operators"), body = table.tBodies[0];
  const value = (row, column) => {
    const cell = row.cells[column], number = cell.querySelector("data");
    return number ? Number(number.value) : cell.textContent;
  };
  const sort = (head, column) => {
    const up = head.getAttribute("aria-sort") === "descending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b)) * (up ? 1 : -1);
    body.append(...[...body.rows].sort((a, b) => order(value(a, column), value(b, column))));
  };
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    head.addEventListener("click", () => sort(head, column));
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(head, column); });
  });
  document.getElementById("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}

const names = data.cores.map((core) => `${core.instance} NC ${core.id}`);
const redrawTimeline = drawLanes(document.getElementById("timeline"), names, timelineBars(), [0, data.clock_us]);
const redrawInside = drawInside();
const redrawKernels = data.kernels.length ? drawKernels() : () => {};
drawRoof();
makeTableWork();
addEventListener("resize", () => { redrawTimeline(); redrawInside(); redrawKernels(); drawRoof(); });
