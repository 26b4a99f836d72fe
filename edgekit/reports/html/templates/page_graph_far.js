// What stands at the graph where its boxes are too small to read: each segment and its device, as
// many as have room, the largest first.
const FAR_LETTER = 6.6, FAR_HIGH = 18;

// [words, x, y of its first box] of the segments of a picture of layers, the largest first
function farPlaces(picture, data) {
  const found = new Map();
  for (const [ref, x, y] of picture.nodes) {
    if (ref < 0) continue;
    const segment = data.layers[ref][2];
    if (!found.has(segment)) {
      const [title, , , told] = data.segments[-segment - 1] || ["", "", "", ""];
      found.set(segment, { words: told.split(":")[0] || title, x, y, count: 0 });
    }
    found.get(segment).count += 1;
  }
  return Array.from(found.values()).sort((a, b) => b.count - a.count);
}

function farLabels(holder, make, places, view, size) {
  holder.replaceChildren();
  const taken = [];
  for (const one of places) {
    const wide = one.words.length * FAR_LETTER + 12;
    const x = Math.min(one.x * view.k + view.x, size.w - wide - 2), y = one.y * view.k + view.y;
    if (x < 0 || y < 0 || y + FAR_HIGH > size.h) continue;
    if (taken.some(([u, v, w]) => x < u + w && u < x + wide && Math.abs(y - v) < FAR_HIGH + 2)) continue;
    taken.push([x, y, wide]);
    make("rect", { class: "farback", x, y, width: wide, height: FAR_HIGH, rx: 3 }, holder);
    make("text", { class: "farname", x: x + 6, y: y + 13 }, holder).textContent = one.words;
  }
}
