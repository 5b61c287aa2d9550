// SPDX-License-Identifier: Apache-2.0
// Makes the table of points sort and filter, and draws the plots with d3 where the page holds it. Text from the data goes
// into the page as text only, never as HTML.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("octile-data").textContent);
  const labelOf = (group) => `${group.name} (${group.n} × ${group.k})`;

  // The table.

  const table = document.getElementById("points-table");
  const body = table.tBodies[0];
  const rows = [...body.rows];

  // As shown: "1.25x [1.20, 1.30]" sorts as 1.25; what was not measured ("-") comes last in both directions.
  const sortBy = (column, isText, direction) => {
    const key = (row) => {
      const text = row.cells[column].textContent.trim();
      return isText ? text : Number.parseFloat(text);
    };
    const keyed = rows.map((row) => ({ row, key: key(row) }));
    keyed.sort((a, b) => {
      if (isText) return direction * a.key.localeCompare(b.key, "en", { numeric: true });
      if (Number.isNaN(a.key) || Number.isNaN(b.key)) return Number.isNaN(a.key) - Number.isNaN(b.key);
      return direction * (a.key - b.key);
    });
    body.append(...keyed.map((entry) => entry.row));
  };

  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    // No <button>: browsers leave them out where a table's head is repeated on the next printed page.
    const button = document.createElement("span");
    button.setAttribute("role", "button");
    button.tabIndex = 0;
    button.textContent = header.textContent;
    header.replaceChildren(button);
    const sort = () => {
      const isAscending = header.getAttribute("aria-sort") !== "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", isAscending ? "ascending" : "descending");
      sortBy(column, header.classList.contains("text"), isAscending ? 1 : -1);
    };
    button.addEventListener("click", sort);
    button.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      sort();
    });
  });

  const filters = document.getElementById("filters");
  const search = document.getElementById("filter-text");
  const shape = document.getElementById("filter-shape");
  const choice = document.getElementById("filter-choice");
  const count = document.getElementById("filter-count");
  const choiceOf = (row) => row.querySelector(".badge").textContent;
  data.groups.forEach((group, i) => shape.append(new Option(labelOf(group), String(i))));
  [...new Set(rows.map(choiceOf))].sort().forEach((name) => choice.append(new Option(name, name)));
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    let shown = 0;
    for (const row of rows) {
      const fits = (shape.value === "" || row.dataset.group === shape.value) &&
        (choice.value === "" || choiceOf(row) === choice.value) && words.every((word) => texts.get(row).includes(word));
      row.hidden = !fits;
      shown += fits ? 1 : 0;
    }
    count.textContent = shown === rows.length ? `${shown} points` : `${shown} of ${rows.length} points`;
  };
  filters.addEventListener("input", filter);
  filters.addEventListener("change", filter);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.hidden = false;
  filter();

  // The plots.

  const grid = document.getElementById("plot-grid");
  if (grid === null || typeof d3 === "undefined") return;

  const any = (field) => data.points.some((point) => point[field] !== null);
  const hasVendor = any("vendor");
  const hasOwn = any("own");
  const hasFloor = any("floor");
  const hasShare = any("share");
  const symbols = new Map([["tile", d3.symbolCircle], ["vendor", d3.symbolTriangle], ["baseline", d3.symbolCircle]]);
  const foreignSymbols = [d3.symbolCross, d3.symbolDiamond, d3.symbolStar, d3.symbolWye, d3.symbolSquare, d3.symbolTriangle];
  const foreignOf = (name, size = 38) => d3.symbol().type(foreignSymbols[name % foreignSymbols.length]).size(size)();
  const symbolOf = (serves, size = 38) => d3.symbol().type(symbols.get(serves) ?? d3.symbolSquare).size(size)();
  const dotClass = (serves) => `dot ${symbols.has(serves) ? serves : "heuristic"}`;

  const us = (value) => (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0)) + " µs";
  const interval = (ratio) => (ratio[1] === null || ratio[2] === null ? "" : ` [${ratio[1].toFixed(2)}, ${ratio[2].toFixed(2)}]`);

  const legend = d3.select("#plot-legend");
  const addToLegend = (text, draw) => {
    const entry = legend.append("span");
    draw(entry.append("svg").attr("width", 30).attr("height", 14).attr("aria-hidden", "true"));
    entry.append("span").text(text);
  };
  const line = (name) => (svg) => svg.append("path").attr("class", `series ${name}`).attr("d", "M1,7H29");
  const dot = (serves) => (svg) =>
    svg.append("path").attr("class", dotClass(serves)).attr("d", symbolOf(serves)).attr("transform", "translate(15,7)");
  addToLegend("baseline", line("baseline"));
  if (hasVendor) addToLegend("searched vendor", line("vendor"));
  addToLegend("choice", line("choice"));
  if (hasOwn) addToLegend("own families alone", line("own"));
  if (hasFloor) addToLegend("floor", line("floor"));
  const serving = new Set(data.points.map((point) => point.serves));
  if (serving.has("tile")) addToLegend("a tile serves", dot("tile"));
  if (serving.has("vendor")) addToLegend("a vendor algorithm serves", dot("vendor"));
  if (serving.has("baseline")) addToLegend("the baseline serves", dot("baseline"));
  if (serving.has("heuristic")) addToLegend("a heuristic serves", dot("heuristic"));
  data.published.forEach((name, i) =>
    addToLegend(`${name} (from ${data.published_from}, other run)`, (svg) =>
      svg.append("path").attr("class", "foreign").attr("d", foreignOf(i)).attr("transform", "translate(15,7)")));
  if (data.cliffs.some((cliff) => cliff.curve === "choice")) addToLegend("cliff", (svg) => drawCliff(svg, 15, 3, 14));

  function drawCliff(parent, x, top, bottom) {
    parent.append("line").attr("class", "cliff").attr("x1", x).attr("x2", x).attr("y1", top).attr("y2", bottom);
    parent.append("path").attr("class", "cliff-mark").attr("d", `M${x - 4},${top - 3}h8l-4,7z`);
  }

  const margin = { left: 46, right: 14 };
  const titleHeight = 24;
  const gap = 14;
  const xAxisHeight = 40;

  // Ticks 1, 2, 5, 10, ... of a logarithmic axis; over more than two decades the powers of ten alone.
  const logTicks = ([low, high]) => {
    const steps = high / low > 100 ? [1] : high / low > 20 ? [1, 3] : [1, 2, 3, 5, 7];
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power) {
      for (const step of steps) {
        const tick = step * 10 ** power;
        if (tick >= low && tick <= high) ticks.push(tick);
      }
    }
    return ticks;
  };
  // Powers of two among the M, thinned so that labels do not meet.
  const mTicks = (x, points) => {
    const [first, last] = d3.extent(points, (point) => point.m);
    const candidates = [];
    for (let m = 1; m <= last; m *= 2) if (m >= first) candidates.push(m);
    if (candidates.length < 2) candidates.splice(0, candidates.length, ...new Set([first, last]));
    const every = Math.max(1, Math.ceil((candidates.length * 42) / Math.max(1, x(last) - x(first))));
    return candidates.filter((_, i) => i % every === 0);
  };

  function panelFrame(svg, x, y, title, ticks, yTicks, format, width) {
    const [bottom, top] = y.range();
    svg.append("text").attr("class", "panel-title").attr("x", 0).attr("y", top - 9).text(title);
    const lines = svg.append("g").attr("class", "grid");
    lines.selectAll(null).data(ticks).enter().append("line")
      .attr("x1", x).attr("x2", x).attr("y1", top).attr("y2", bottom);
    lines.selectAll(null).data(yTicks).enter().append("line")
      .attr("x1", margin.left).attr("x2", width - margin.right).attr("y1", y).attr("y2", y);
    svg.append("g").attr("class", "axis").attr("transform", `translate(${margin.left},0)`)
      .call(d3.axisLeft(y).tickValues(yTicks).tickFormat(format).tickSize(0).tickPadding(6))
      .call((axis) => axis.select(".domain").remove());
  }

  const drawLine = (svg, name, points, x, y, value) =>
    svg.append("path").datum(points).attr("class", `series ${name}`)
      .attr("d", d3.line().defined((point) => value(point) !== null).x((point) => x(point.m)).y((point) => y(value(point))));
  const drawBand = (svg, name, points, x, y, low, high) =>
    svg.append("path").datum(points).attr("class", `band ${name}`)
      .attr("d", d3.area().defined((point) => low(point) !== null && high(point) !== null)
        .x((point) => x(point.m)).y0((point) => y(low(point))).y1((point) => y(high(point))));
  // A point without neighbours makes no line and no band: a dot with the bar of its interval shows it.
  const drawLone = (svg, name, points, x, y, value, low, high) => {
    const is = (i) => i >= 0 && i < points.length && value(points[i]) !== null;
    for (const point of points.filter((_, i) => is(i) && !is(i - 1) && !is(i + 1))) {
      const lone = svg.append("g").attr("class", `lone ${name}`).attr("transform", `translate(${x(point.m)},0)`);
      lone.append("circle").attr("r", 2.5).attr("cy", y(value(point)));
      if (low(point) !== null && high(point) !== null) lone.append("path").attr("d", `M0,${y(low(point))}V${y(high(point))}`);
    }
  };
  const none = () => null;
  const bound = (ratio, i) => (ratio === null ? null : ratio[i]);
  const scaled = (field, i) => (point) => {
    const ratio = bound(point[field], i);
    return ratio === null ? null : ratio * point.choice;
  };
  const others = [["baseline", "gain"], ...(hasVendor ? [["vendor", "over_vendor"]] : [])];

  function draw(figure, points, cliffs) {
    const width = Math.max(280, Math.round(figure.node().clientWidth));
    const heights = [210, 120, ...(hasShare ? [90] : [])];
    const total = d3.sum(heights) + heights.length * titleHeight + (heights.length - 1) * gap + xAxisHeight;
    const svg = figure.select("svg").attr("viewBox", `0 0 ${width} ${total}`);
    svg.selectAll("*").remove();
    const [first, last] = d3.extent(points, (point) => point.m);
    const x = d3.scaleLog().domain(first === last ? [first / 2, last * 2] : [first, last])
      .range([margin.left + 8, width - margin.right - 8]);
    const ticks = mTicks(x, points);
    const tops = heights.map((_, i) => titleHeight + d3.sum(heights.slice(0, i)) + i * (titleHeight + gap));
    const rangeOf = (i) => [tops[i] + heights[i], tops[i]];

    const times = points.flatMap((point) => [point.baseline, point.vendor, point.choice, point.own, point.floor, ...point.published.map(([, us]) => us)]).filter((t) => t !== null);
    const inMs = d3.max(times) > 20000;
    const unit = inMs ? 1000 : 1;
    const y = d3.scaleLog().domain([d3.min(times) / 1.15, d3.max(times) * 1.25]).range(rangeOf(0));
    const tickUnits = logTicks(y.domain().map((time) => time / unit)).map((tick) => tick * unit);
    panelFrame(svg, x, y, `time, ${inMs ? "ms" : "µs"}, log scale`, ticks, tickUnits, (tick) => d3.format("~g")(tick / unit), width);
    cliffs.forEach((cliff) => drawCliff(svg.append("g"), x(cliff.m), tops[0] + 3, tops[0] + heights[0]));
    for (const [name, field] of others) drawBand(svg, name, points, x, y, scaled(field, 1), scaled(field, 2));
    if (hasFloor) drawLine(svg, "floor", points, x, y, (point) => point.floor);
    for (const [name, field] of others) {
      drawLine(svg, name, points, x, y, (point) => point[name]);
      drawLone(svg, name, points, x, y, (point) => point[name], scaled(field, 1), scaled(field, 2));
    }
    if (hasFloor) drawLone(svg, "floor", points, x, y, (point) => point.floor, none, none);
    if (hasOwn) {
      drawLine(svg, "own", points, x, y, (point) => point.own);
      drawLone(svg, "own", points, x, y, (point) => point.own, none, none);
    }
    drawLine(svg, "choice", points, x, y, (point) => point.choice);
    const size = points.length > 400 ? 5 : points.length > 60 ? 14 : 38;
    svg.append("g").attr("class", points.length > 400 ? "dense" : "").selectAll(null).data(points).enter().append("path")
      .attr("class", (point) => dotClass(point.serves)).attr("d", (point) => symbolOf(point.serves, size))
      .attr("transform", (point) => `translate(${x(point.m)},${y(point.choice)})`);
    svg.append("g").selectAll(null).data(points.flatMap((point) => point.published.map(([name, us]) => ({ m: point.m, name, us }))))
      .enter().append("path").attr("class", "foreign").attr("d", (mark) => foreignOf(mark.name, size))
      .attr("transform", (mark) => `translate(${x(mark.m)},${y(mark.us)})`);

    const bounds = points.flatMap((point) => others.flatMap(([, field]) => point[field] ?? [])).filter((b) => b !== null);
    const gain = d3.scaleLinear().domain([Math.min(0.9, d3.min(bounds) ?? 1), Math.max(1.2, d3.max(bounds) ?? 1)]).range(rangeOf(1));
    panelFrame(svg, x, gain, `${hasVendor ? "baseline and vendor" : "baseline"} / choice, with 95 % intervals`, ticks, gain.ticks(5), gain.tickFormat(5), width);
    svg.append("line").attr("class", "one").attr("x1", margin.left).attr("x2", width - margin.right)
      .attr("y1", gain(1)).attr("y2", gain(1));
    for (const [name, field] of others) {
      const [mid, low, high] = [0, 1, 2].map((i) => (point) => bound(point[field], i));
      drawBand(svg, name, points, x, gain, low, high);
      drawLine(svg, name, points, x, gain, mid);
      drawLone(svg, name, points, x, gain, mid, low, high);
    }

    if (hasShare) {
      const share = d3.scaleLinear().domain([0, Math.max(1, d3.max(points, (point) => point.share)) * 1.05]).range(rangeOf(2));
      panelFrame(svg, x, share, "share of the floor, %", ticks, [0, 0.25, 0.5, 0.75, 1], (tick) => `${100 * tick}`, width);
      svg.append("line").attr("class", "one").attr("x1", margin.left).attr("x2", width - margin.right)
        .attr("y1", share(1)).attr("y2", share(1));
      drawLine(svg, "choice", points, x, share, (point) => point.share);
      drawLone(svg, "choice", points, x, share, (point) => point.share, none, none);
    }

    const bottom = total - xAxisHeight;
    svg.append("g").attr("class", "axis").attr("transform", `translate(0,${bottom})`)
      .call(d3.axisBottom(x).tickValues(ticks).tickFormat((tick) => `${tick}`).tickSize(4).tickPadding(4));
    svg.append("text").attr("class", "axis-title").attr("x", (margin.left + width - margin.right) / 2).attr("y", total - 5)
      .attr("text-anchor", "middle").text("M, tokens, log scale");
    const crosshair = svg.append("line").attr("class", "crosshair").attr("y1", tops[0]).attr("y2", bottom).style("display", "none");
    return {
      nearest: (px) => {
        const scale = width / svg.node().getBoundingClientRect().width;
        const distance = (i) => Math.abs(x(points[i].m) - px * scale);
        return points.reduce((best, _, i) => (distance(i) < distance(best) ? i : best), 0);
      },
      point: (i) => crosshair.style("display", null).attr("x1", x(points[i].m)).attr("x2", x(points[i].m)),
    };
  }

  function tell(readout, point) {
    readout.selectAll("*").remove();
    const add = (name, value) => {
      const entry = readout.append("span");
      entry.text(`${name} `);
      entry.append("b").text(value);
    };
    add("M", String(point.m));
    if (point.baseline !== null) add("baseline", us(point.baseline));
    if (point.vendor !== null) add("searched vendor", us(point.vendor));
    add("choice", `${us(point.choice)}, ${point.serves}${point.kernel === "" || point.kernel === point.serves ? "" : ` ${point.kernel}`}`);
    if (point.own !== null) add("own families alone", `${us(point.own)}, ${point.own_kernel}`);
    for (const [name, time] of point.published) add(`${data.published[name]}, other run`, us(time));
    if (point.gain !== null) add("baseline / choice", `${point.gain[0].toFixed(2)}x${interval(point.gain)}`);
    if (point.own_gain !== null) add("baseline / own", `${point.own_gain[0].toFixed(2)}x${interval(point.own_gain)}`);
    if (point.over_vendor !== null) add("vendor / choice", `${point.over_vendor[0].toFixed(2)}x${interval(point.over_vendor)}`);
    if (point.share !== null) add("of the floor", `${(100 * point.share).toFixed(0)} %`);
  }

  data.groups.forEach((group, g) => {
    const points = data.points.filter((point) => point.group === g).sort((a, b) => a.m - b.m);
    if (points.length === 0) return;
    const cliffs = data.cliffs.filter((cliff) => cliff.group === g && cliff.curve === "choice");
    const figure = d3.select(grid).append("figure").attr("class", "plot");
    const title = figure.append("h3");
    title.text(`${group.name} `);
    title.append("small").text(`N × K = ${group.n} × ${group.k}`);
    const readout = figure.append("p").attr("class", "readout").attr("aria-live", "polite");
    const svg = figure.append("svg").attr("role", "img").attr("tabindex", 0)
      .attr("aria-label", `Time, gain and share of the floor over M of ${labelOf(group)}; arrow keys go through the points`);
    let plot = draw(figure, points, cliffs);
    let selected = 0;
    const select = (i) => {
      selected = Math.min(Math.max(i, 0), points.length - 1);
      plot.point(selected);
      tell(readout, points[selected]);
    };
    tell(readout, points[0]);
    const follow = (event) => select(plot.nearest(event.clientX - svg.node().getBoundingClientRect().left));
    svg.node().addEventListener("pointermove", follow);
    svg.node().addEventListener("pointerdown", follow);
    svg.node().addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      select(selected + step);
    });
    let drawnWidth = figure.node().clientWidth;
    new ResizeObserver(() => {
      const width = figure.node().clientWidth;
      if (Math.abs(width - drawnWidth) < 2 || width === 0) return;
      drawnWidth = width;
      plot = draw(figure, points, cliffs);
    }).observe(figure.node());
  });
})();
