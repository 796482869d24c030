// Draws plots with Observable Plot (globals Plot and d3) from plain data: `drawPlots(root, plots)` fills each figure of
// `root` with data-plot="NAME" from plots[NAME], again when its width changes. Plot never reads text as HTML.
const COLORS = [1, 2, 3, 4, 5, 6, 7, 8].map((number) => `var(--c${number})`);
const SCALES = { bytes: 2 ** 30, "%": 0.01 };

function inUnit(value, unit) {
  const text = Number(value.toPrecision(value >= 1000 ? 6 : 4)).toLocaleString("en-US", { maximumSignificantDigits: 6 });
  if (unit === "usd") return `$${text}`;
  if (unit === "%") return `${text} %`;
  if (unit === "ms" && value >= 1000) return `${value / 1000} s`;
  if (unit === "ms" && value > 0 && value < 0.1) return `${Number((value * 1000).toPrecision(4))} us`;
  if (unit === "ms" || unit === "s") return `${text} ${unit}`;
  return value >= 1e6 ? d3.format(".3~s")(value) : text;
}

function axisOf(axis, more) {
  const scale = SCALES[axis.unit] ?? 1;
  return {
    label: axis.label || null, type: axis.log ? "log" : "linear", grid: true, ticks: 6, nice: !axis.log,
    transform: (value) => (value === null ? NaN : value / scale), tickFormat: (value) => inUnit(value, axis.unit), ...more,
  };
}

// Ticks of a logarithmic axis whose values are so near that the usual ones, which have one leading digit, are few.
function nearTicks(axis, rows, names) {
  const [low, high] = d3.extent(rows.flatMap((row) => names.map((name) => row[name])).filter((value) => value > 0));
  return axis.log && high / low < 8 ? { ticks: d3.ticks(low, high, 5) } : {};
}

const across = (width) => ({ labelOffset: 40, ticks: Math.max(2, Math.min(8, Math.floor(width / 110))) });
const unique = (rows, name) => [...new Set(rows.map((row) => row[name]))];
const withInterval = (rows) => rows.filter((row) => row.low !== null && row.low !== undefined);
const pointTip = (rows) => Plot.tip(rows, Plot.pointer({ x: "x", y: "y", title: "tip", lineWidth: 40, lineHeight: 1.4 }));

function colorsOf(rows, name) {
  const domain = unique(rows, name);
  return { domain, range: COLORS, legend: domain.length > 1 };
}

function barFrame(names, width, height) {
  const marginLeft = Math.min(Math.max(60, 7.2 * d3.max(names, (name) => name.length) + 16), 320);
  return { width, height: 74 + height * names.length, marginLeft, marginRight: 40, marginBottom: 44, y: { domain: names, label: null } };
}

const DRAW = {
  scatter({ rows, x, y }, width) {
    const front = rows.filter((row) => row.front).sort((one, other) => one.x - other.x);
    const faint = { stroke: "group", strokeOpacity: 0.3 }, place = { x: "x", y: "y" };
    const label = { ...place, text: "label", dy: -9, fill: "currentColor", stroke: "var(--paper)", strokeWidth: 4 };
    const [left, right] = d3.extent(rows, (row) => row.x), isRight = (row) => row.x > left ** 0.3 * right ** 0.7;
    return {
      width, height: 440, marginLeft: 64, marginRight: 90, marginTop: 28, marginBottom: 44,
      color: colorsOf(rows, "group"), x: axisOf(x, { ...across(width), ...nearTicks(x, rows, ["x", "x_low", "x_high"]) }),
      y: axisOf(y, nearTicks(y, rows, ["y", "y_low", "y_high"])), marks: [
        Plot.ruleX(rows, { x: "x", y1: "y_low", y2: "y_high", ...faint }),
        Plot.ruleY(rows, { y: "y", x1: "x_low", x2: "x_high", ...faint }),
        Plot.line(front, { ...place, stroke: "currentColor", strokeDasharray: "5 4" }),
        Plot.dot(rows, { ...place, fill: "group", r: (row) => (row.front ? 6 : 3.5), stroke: "var(--paper)" }),
        Plot.text(front.filter((row) => !isRight(row)), { ...label, dx: 9, textAnchor: "start" }),
        Plot.text(front.filter(isRight), { ...label, dx: 9, textAnchor: "end" }), pointTip(rows),
      ],
    };
  },
  lines({ rows, x, y }, width) {
    const place = { x: "x", y: "y" };
    return {
      width, height: 310, marginLeft: 64, marginRight: 24, marginTop: 28, marginBottom: 44,
      color: colorsOf(rows, "series"), y: axisOf(y, { zero: !y.log, ...nearTicks(y, rows, ["y", "low", "high"]) }),
      x: axisOf(x, { ...across(width), ...(x.log ? { base: 2, ticks: unique(rows, "x").sort(d3.ascending) } : {}) }), marks: [
        Plot.areaY(withInterval(rows), { x: "x", y1: "low", y2: "high", fill: "series", fillOpacity: 0.13 }),
        Plot.lineY(rows, { ...place, stroke: "series", strokeWidth: 2 }),
        ...(rows.length <= 60 ? [Plot.dot(rows, { ...place, fill: "series", r: 3 })] : []), pointTip(rows),
      ],
    };
  },
  stacked({ rows, x, limits }, width) {
    const order = unique(rows, "part"), place = { x: "value", y: "row", z: "part", order };
    return {
      ...barFrame(unique(rows, "row"), width, 30), color: colorsOf(rows, "part"), x: axisOf(x, across(width)), marks: [
        Plot.barX(rows, Plot.stackX({ ...place, fill: "part", insetTop: 3, insetBottom: 3 })),
        Plot.tickX(limits, { x: "value", y: "row", stroke: "currentColor", strokeWidth: 2 }), Plot.ruleX([0]),
        Plot.tip(rows, Plot.pointer(Plot.stackX({ ...place, title: "tip", lineWidth: 40, lineHeight: 1.4 }))),
      ],
    };
  },
  bars({ rows, x }, width) {
    const place = { x: "value", y: "row" };
    return {
      ...barFrame(unique(rows, "row"), width, 26), color: colorsOf(rows, "group"),
      x: axisOf(x, { zero: true, ...across(width) }), marks: [
        Plot.barX(rows, { ...place, fill: "group", insetTop: 4, insetBottom: 4 }),
        Plot.ruleY(withInterval(rows), { y: "row", x1: "low", x2: "high", stroke: "currentColor", strokeWidth: 1.5 }),
        Plot.ruleX([0]), Plot.tip(rows, Plot.pointerY({ ...place, title: "tip", lineWidth: 40, lineHeight: 1.4 })),
      ],
    };
  },
};

function drawPlots(root, plots) {
  for (const figure of root.querySelectorAll("figure[data-plot]")) {
    const spec = plots[figure.dataset.plot];
    const draw = () => {
      const width = Math.max(figure.clientWidth, 320);
      if (figure.dataset.width === String(width)) return;
      figure.dataset.width = String(width);
      figure.replaceChildren(Plot.plot({ style: { background: "none" }, ...DRAW[spec.kind](spec, width) }));
    };
    draw();
    new ResizeObserver(draw).observe(figure);
  }
}
