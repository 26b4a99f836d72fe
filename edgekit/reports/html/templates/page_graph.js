// The placement graph: it draws what stands in the data, where the data says. Only the boxes
// within the window exist as elements, and none of them where they would be too small to read.
(() => {
  const holder = byId("graph-view"), source = byId("graph-data");
  if (!holder) return;
  const data = JSON.parse(source.textContent);
  const SVG = document.querySelector(".still svg").namespaceURI;
  const READABLE = 0.42, MOST = 2.5, NARROW = 600;
  const make = (name, attributes, parent) => {
    const one = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (parent) parent.append(one);
    return one;
  };
  const svg = make("svg", { class: "graph live", tabindex: 0, role: "listbox",
    "aria-label": "Placement graph", "aria-describedby": "graph-hint" }, holder);
  const scene = make("g", {}, svg);
  const lanes = make("g", { "aria-hidden": "true" }, scene);
  const edges = make("path", { class: "edge", "aria-hidden": "true" }, scene);
  const far = make("g", { class: "distant", "aria-hidden": "true" }, scene);
  const near = make("g", { role: "presentation" }, scene);
  const names = make("g", { "aria-hidden": "true" }, svg);
  const told = byId("graph-where");
  let picture, places = [], name, view = { x: 0, y: 0, k: 1 }, current = 0, drawn = new Map(), due = 0;

  const thing = (ref) => ref < 0 ? data.segments[ref] : data.layers[ref];
  const size = () => ({ w: svg.clientWidth || 800, h: svg.clientHeight || 400 });

  // from a box's edge to another's: downwards, along a side where that would cross boxes
  function curve(a, b, w, h) {
    const [, ax, ay] = a, [, bx, by] = b;
    if (picture.lanes.length) {
      const x = ax + w, y = ay + h / 2, v = by + h / 2, bend = Math.max(Math.abs(bx - x) / 2, 22);
      const turn = Math.max(...picture.turns.filter((one) => one < by)); // the gap above its lanes
      if (bx < x) return `M${x} ${y}h12V${turn}H${bx - 12}V${v}h12`;
      return `M${x} ${y}C${x + bend} ${y} ${bx - bend} ${v} ${bx} ${v}`;
    }
    if (by > ay && by - ay < 2 * h + 8) {
      const x = ax + w / 2, u = bx + w / 2, bend = (by - ay - h) / 2;
      return `M${x} ${ay + h}C${x} ${ay + h + bend} ${u} ${by - bend} ${u} ${by}`;
    }
    if (Math.abs(bx - ax) < w) {
      const x = ax + w, out = Math.max(x, bx + w) + Math.min(14 + Math.abs(by - ay) / 24, 44);
      return `M${x} ${ay + h / 2}C${out} ${ay + h / 2} ${out} ${by + h / 2} ${bx + w} ${by + h / 2}`;
    }
    const u = bx > ax ? bx : bx + w, s = bx > ax ? ax + w : ax, bend = (u - s) / 2;
    return `M${s} ${ay + h / 2}C${s + bend} ${ay + h / 2} ${u - bend} ${by + h / 2} ${u} ${by + h / 2}`;
  }

  function box(i) {
    const [ref, x, y] = picture.nodes[i], [w, h] = picture.box, one = thing(ref);
    const g = make("g", { id: "graph-box-" + i, role: "option", "aria-label": one[3],
      "aria-selected": "false", "aria-posinset": i + 1, "aria-setsize": picture.nodes.length,
      transform: `translate(${x} ${y})` }, near);
    make("title", {}, g).textContent = one[3];
    make("rect", { class: "box fill-" + one[1], width: w, height: h, rx: 5 }, g);
    if (ref < 0) {
      const roomy = picture.lanes.length > 0;
      make("text", { class: "boxname", x: 12, y: roomy ? 24 : h / 2 + 4 }, g).textContent = one[0];
      if (roomy) make("text", { class: "boxline", x: 12, y: 43 }, g).textContent = one[2];
      if (!roomy) g.classList.add("stub");
    } else {
      make("text", { class: "layername", x: 9, y: 20 }, g).textContent = one[0];
      make("text", { class: "boxline", x: 9, y: 35 }, g).textContent = one[5] || "";
      if (one[4]) make("path", { class: "cannot", d: `M${w - 12} 0H${w}V12z` }, g);
    }
    return g;
  }

  function render() {
    due = 0;
    const { w, h } = size(), [bw, bh] = picture.box;
    scene.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.k})`);
    const left = -view.x / view.k - bw, top = -view.y / view.k - bh;
    const right = left + w / view.k + bw, bottom = top + h / view.k + bh;
    const readable = view.k >= READABLE;
    svg.classList.toggle("far", !readable);
    farLabels(names, make, readable ? [] : places, view, { w, h });
    const seen = new Set([current]);
    if (readable) picture.nodes.forEach(([, x, y], i) => {
      if (x > left && x < right && y > top && y < bottom) seen.add(i);
    });
    for (const [i, g] of drawn) if (!seen.has(i)) { g.remove(); drawn.delete(i); }
    for (const i of seen) if (!drawn.has(i)) drawn.set(i, box(i));
    for (const [i, g] of drawn) g.setAttribute("aria-selected", String(i === current));
    svg.setAttribute("aria-activedescendant", "graph-box-" + current);
  }

  const later = () => { if (!due) due = requestAnimationFrame(render); };

  function fit(whole) {
    const [pw, ph] = picture.size, across = size().w;
    // no taller than the picture needs; the style sheet has the most
    const wanted = ph * Math.min(Math.max((across - 24) / pw, 0.6), 1.25) + 24;
    svg.style.height = Math.max(wanted, 200) < 480 ? Math.max(wanted, 200) + "px" : "";
    const { w, h } = size();
    const all = Math.min((w - 24) / pw, (h - 24) / ph, 1.25);
    // a picture that would be too small to read begins at its beginning
    const least = !picture.lanes.length ? all : w < NARROW ? (w - 24) / pw : 0.6;
    const k = whole ? all : Math.min(Math.max(all, least), 1.25);
    view = { k, x: Math.max((w - pw * k) / 2, 12), y: Math.max((h - ph * k) / 2, 12) };
    later();
  }

  function open(which, ref, focus) {
    name = which;
    picture = data.pictures[which];
    if (which === "segments" && size().w < NARROW) picture = data.pictures.narrow || picture;
    places = farPlaces(picture, data);
    for (const g of drawn.values()) g.remove();
    drawn = new Map();
    const [w, h] = picture.box;
    edges.setAttribute("d", picture.edges.map(
      ([a, b]) => curve(picture.nodes[a], picture.nodes[b], w, h)).join(""));
    lanes.replaceChildren();
    for (const [x, y, lw, lh, device] of picture.lanes) {
      make("rect", { class: "lane", x, y, width: lw, height: lh, rx: 6 }, lanes);
      make("text", { class: "lanename", x: 12, y: y + lh / 2 + 4 }, lanes).textContent = device;
    }
    far.replaceChildren(); // all boxes of a device in one path: what is seen from far away
    const paths = {};
    for (const [one, x, y] of picture.nodes) {
      const css = thing(one)[1];
      paths[css] = (paths[css] || "") + `M${x} ${y}h${w}v${h}h${-w}z`;
    }
    for (const css of Object.keys(paths)) make("path", { class: "fill-" + css, d: paths[css] }, far);
    current = Math.max(picture.nodes.findIndex(([one]) => one === ref), 0);
    const count = picture.nodes.filter(([one]) => one > 0).length;
    const plural = (number, noun) => many(number) + " " + noun + (number === 1 ? "" : "s");
    told.textContent = which === "segments" ? plural(picture.nodes.length, "segment")
      : (which === "all" ? "" : "Segment " + which + ": ") + plural(count, "layer");
    for (const button of document.querySelectorAll("[data-graph]"))
      button.setAttribute("aria-pressed", String(button.dataset.graph === which));
    fit(false);
    if (ref !== undefined && which !== "segments") reveal(true);
    if (focus) svg.focus({ preventScroll: true });
  }

  function zoom(factor, x, y) {
    const { w, h } = size();
    const px = x === undefined ? w / 2 : x, py = y === undefined ? h / 2 : y;
    const least = Math.min((w - 24) / picture.size[0], (h - 24) / picture.size[1], 0.4) / 2;
    const k = Math.min(Math.max(view.k * factor, least), MOST), by = k / view.k;
    view = { k, x: px - (px - view.x) * by, y: py - (py - view.y) * by };
    later();
  }

  // moves the window so that the current box is in it, readable where that is asked for
  function reveal(closer) {
    const { w, h } = size(), [bw, bh] = picture.box;
    const [, x, y] = picture.nodes[current];
    if (closer && view.k < 0.75) view.k = 0.9;
    const sx = x * view.k + view.x, sy = y * view.k + view.y;
    if (sx < 0 || sy < 0 || sx + bw * view.k > w || sy + bh * view.k > h || closer) {
      view.x = w / 2 - (x + bw / 2) * view.k;
      view.y = h / 2 - (y + bh / 2) * view.k;
      // no empty strip beside a picture that is larger than the window
      const [pw, ph] = picture.size.map((one) => one * view.k + 12);
      if (pw > w) view.x = Math.min(Math.max(view.x, w - pw), 12);
      if (ph > h) view.y = Math.min(Math.max(view.y, h - ph), 12);
    }
    later();
  }

  function act(i) {
    current = i;
    const ref = picture.nodes[i][0];
    if (ref > 0) go("#layer-" + ref);
    else open(String(-ref - 1), name === "segments" ? undefined : -Number(name) - 1, true);
  }

  // the nearest box in a direction; what lies aside counts double
  function step(dx, dy) {
    const [, x, y] = picture.nodes[current];
    let best = -1, least = Infinity;
    picture.nodes.forEach(([, u, v], i) => {
      const along = (u - x) * dx + (v - y) * dy, aside = Math.abs((u - x) * dy) + Math.abs((v - y) * dx);
      const cost = along + 2 * aside;
      if (along > 1 && cost < least) { least = cost; best = i; }
    });
    if (best >= 0) { current = best; reveal(view.k < READABLE); }
  }

  const keys = {
    ArrowLeft: () => step(-1, 0), ArrowRight: () => step(1, 0),
    ArrowUp: () => step(0, -1), ArrowDown: () => step(0, 1),
    Home: () => { current = 0; reveal(false); },
    End: () => { current = picture.nodes.length - 1; reveal(false); },
    "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit(true),
    Enter: () => act(current), " ": () => act(current),
    Escape: () => { if (name !== "segments") open("segments", name === "all" ? undefined : -Number(name) - 1, true); },
  };
  svg.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    const frame = svg.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - frame.left, event.clientY - frame.top);
  }, { passive: false });

  const pointers = new Map();
  let moved = 0;
  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    pointers.set(event.pointerId, event);
    moved = pointers.size > 1 ? 99 : 0;
  });
  svg.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const dx = event.clientX - before.clientX, dy = event.clientY - before.clientY;
    moved += Math.abs(dx) + Math.abs(dy);
    if (moved > 6 && !svg.hasPointerCapture(event.pointerId)) svg.setPointerCapture(event.pointerId);
    if (pointers.size === 2) {
      const other = [...pointers.values()].find((one) => one.pointerId !== event.pointerId);
      const far = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      const frame = svg.getBoundingClientRect();
      zoom(far(event) / (far(before) || 1), (event.clientX + other.clientX) / 2 - frame.left,
        (event.clientY + other.clientY) / 2 - frame.top);
    }
    const part = pointers.size; // two fingers move the picture half each
    view.x += dx / part;
    view.y += dy / part;
    pointers.set(event.pointerId, event);
    later();
  });
  for (const kind of ["pointerup", "pointercancel"])
    svg.addEventListener(kind, (event) => pointers.delete(event.pointerId));
  svg.addEventListener("click", (event) => {
    if (moved > 6) return;
    const frame = svg.getBoundingClientRect(), [w, h] = picture.box;
    const x = (event.clientX - frame.left - view.x) / view.k;
    const y = (event.clientY - frame.top - view.y) / view.k;
    const i = picture.nodes.findIndex(([, u, v]) => x >= u && x <= u + w && y >= v && y <= v + h);
    if (i >= 0) act(i);
  });

  for (const button of document.querySelectorAll("[data-graph]"))
    button.addEventListener("click", () => open(button.dataset.graph));
  for (const button of document.querySelectorAll("[data-zoom]"))
    button.addEventListener("click", () => {
      if (button.dataset.zoom === "fit") fit(true);
      else zoom(button.dataset.zoom === "in" ? 1.4 : 1 / 1.4);
    });
  document.addEventListener("layer", (event) => {
    const one = data.layers[event.detail];
    if (!one) return;
    const here = picture.nodes.findIndex(([ref]) => ref === event.detail);
    if (here < 0) open(String(one[2]), event.detail);
    else { current = here; reveal(true); }
  });
  let across = 0;
  addEventListener("resize", () => { // a phone that is turned; its bars only change the height
    if (across === size().w) return later();
    across = size().w;
    const ref = picture.nodes[current][0];
    open(name);
    current = Math.max(picture.nodes.findIndex(([one]) => one === ref), 0);
    if (current) reveal(false);
  });
  holder.hidden = false;
  byId("graph").classList.add("live");
  open("segments");
  across = size().w;
  const meant = /^#layer-(\d+)$/.exec(location.hash);
  if (meant && data.layers[meant[1]]) open(String(data.layers[meant[1]][2]), Number(meant[1]));
})();
