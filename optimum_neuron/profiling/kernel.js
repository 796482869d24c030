// Draws engines and memory of one or two versions of a kernel on one scale of time, and connects instructions with lines of the source.
const MEMORY_HEIGHT = 64;
const total = Math.max(...data.versions.map((version) => version.total_us));

function mark(version, group) {
  const source = document.getElementById(`source-${version}`);
  for (const place of [source, document.getElementById(`engines-${version}`)]) {
    for (const other of place.querySelectorAll("[data-group]")) {
      other.classList.toggle("marked", other.dataset.group === group);
    }
  }
  source.querySelector("tr.marked")?.scrollIntoView({ block: "nearest" });
}

// Bytes of one memory over time, under the engines and with their axis. Levels begin in the order of instructions, so a
// later one may begin earlier in time: it is drawn from the latest begin on.
function drawMemory(place, one) {
  const width = Math.max(place.clientWidth, 480), top = Math.max(one.capacity, ...one.levels.map((level) => level[1]));
  const svg = element("svg", { viewBox: `0 0 ${width} ${MEMORY_HEIGHT + 12}`, height: MEMORY_HEIGHT + 12, role: "img",
    "aria-label": `bytes of a partition of ${one.name} over time` }, place);
  const x = (time) => LEFT + time / total * (width - LEFT - RIGHT), y = (bytes) => MEMORY_HEIGHT * (1 - bytes / top);
  element("rect", { x: LEFT, y: 0, width: width - LEFT - RIGHT, height: MEMORY_HEIGHT, class: "lane" }, svg);
  let path = `M${x(0)},${y(0)}`, level = 0, when = 0;
  for (const [time, bytes] of one.levels) {
    when = Math.max(when, time);
    path += ` L${x(when)},${y(level)} L${x(when)},${y(bytes)}`;
    level = bytes;
  }
  const most = Math.max(0, ...one.levels.map((level) => level[1]));
  element("path", { d: `${path} L${x(total)},${y(level)} L${x(total)},${y(0)} Z`, class: "b-vector",
    "data-tip": `${one.name}: at most ${most} of ${one.capacity} bytes of a partition` }, svg);
  element("line", { x1: LEFT, x2: width - RIGHT, y1: y(one.capacity), y2: y(one.capacity), class: "roof hbm" }, svg);
  element("text", { x: 0, y: MEMORY_HEIGHT / 2 + 4, class: "strong" }, svg, `${one.name}, ${most} B`);
}

function drawVersion(version, number) {
  const bars = version.events.map(([lane, bound, opcode, line, begin, time]) => ({
    lane, bound, begin, end: begin + time, label: opcode, group: line,
    tip: `${opcode} on ${version.engines[lane]}\n${line.split("/").pop()}\n${inTime(time)}, begins at ${inTime(begin)}`,
  }));
  const memory = document.getElementById(`memory-${number}`);
  drawLanes(document.getElementById(`engines-${number}`), version.engines, bars, [0, total],
    (group) => mark(number, group));
  memory.replaceChildren();
  for (const one of version.memory) drawMemory(memory, one);
}

function drawVersions() {
  data.versions.forEach(drawVersion);
}

data.versions.forEach((_, number) => {
  for (const row of document.querySelectorAll(`#source-${number} tr[data-group]`)) {
    row.addEventListener("click", () => mark(number, row.dataset.group));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") mark(number, row.dataset.group); });
  }
});
drawVersions();
addEventListener("resize", drawVersions);
