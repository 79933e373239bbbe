'use strict';
// Draws the pictures of a report, which share a time axis: the wheel zooms it, dragging selects an interval, a double
// click resets the view. A click on a name in a legend hides or shows that layer.

const MARGIN = { left: 64, right: 14, top: 10, bottom: 34 };
const pictures = JSON.parse(document.getElementById('pictures').textContent);
const drawn = [];
let whole = [0, 1];
let view = whole;
let waiting = false;

function numbers(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);   // a loop is faster for millions of bytes
  for (let index = 0; index < bytes.length; index += 1) bytes[index] = characters.charCodeAt(index);
  return new Float32Array(bytes.buffer);
}

// the index of the last value not beyond x, or -1
function before(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle + 1; else high = middle;
  }
  return low - 1;
}

// about `count` round numbers from low to high
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(each => each * power).find(each => each >= rough);
  const found = [];
  for (let index = Math.ceil(low / step); index * step <= high; index += 1) found.push(index * step);
  return [found, Math.max(0, -Math.floor(Math.log10(step) + 1e-9))];
}

class Plot {
  constructor(picture, element) {
    this.picture = picture;
    this.layers = picture.layers.map(layer => ({ ...layer, x: numbers(layer.x), y: numbers(layer.y), shown: true }));
    this.canvas = element.querySelector('canvas');
    this.values = element.querySelector('.values');
    this.selection = null;
    this.addLegend(element.querySelector('.legend'));
    this.listen();
  }

  addLegend(legend) {
    for (const layer of this.layers) {
      const button = document.createElement('button');
      const colour = document.createElement('i');
      colour.style.background = layer.colour;
      button.append(colour, layer.name);
      button.setAttribute('aria-pressed', 'true');
      button.onclick = () => {
        layer.shown = !layer.shown;
        button.setAttribute('aria-pressed', String(layer.shown));
        redraw();
      };
      legend.append(button);
    }
  }

  listen() {
    const canvas = this.canvas;
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      const x = this.timeAt(event), factor = Math.exp(event.deltaY * 0.0015);
      show(x - (x - view[0]) * factor, x + (view[1] - x) * factor);
    }, { passive: false });
    canvas.addEventListener('pointerdown', event => {
      canvas.setPointerCapture(event.pointerId);
      this.selection = [this.timeAt(event), this.timeAt(event)];
    });
    canvas.addEventListener('pointermove', event => {
      if (this.selection) {
        this.selection[1] = this.timeAt(event);
        redraw();
      }
      this.tell(this.timeAt(event));
    });
    canvas.addEventListener('pointerup', event => {
      const [from, to] = [...(this.selection || [0, 0])].sort((a, b) => a - b);
      this.selection = null;
      if ((to - from) / (view[1] - view[0]) > 0.005) show(from, to); else redraw();
    });
    canvas.addEventListener('dblclick', () => show(...whole));
    canvas.addEventListener('pointerleave', () => { this.values.textContent = ''; });
  }

  get width() { return this.canvas.clientWidth - MARGIN.left - MARGIN.right; }
  get height() { return this.canvas.clientHeight - MARGIN.top - MARGIN.bottom; }

  timeAt(event) {
    const place = (event.offsetX - MARGIN.left) / this.width;
    return view[0] + Math.min(1, Math.max(0, place)) * (view[1] - view[0]);
  }

  tell(time) {
    const parts = [`${time.toPrecision(7)} s`];
    if (this.picture.form !== 'points') {
      for (const layer of this.layers.filter(each => each.shown)) {
        const index = before(layer.x, time);
        if (index >= 0) parts.push(`${layer.name}: ${Number(layer.y[index].toPrecision(5))}`);
      }
    }
    this.values.textContent = parts.join('   ');
  }

  // the highest value that is in view
  top(shown) {
    let top = 0;
    if (this.picture.form === 'stack') {
      const x = shown.length ? shown[0].x : [];
      const stop = before(x, view[1]);
      for (let index = Math.max(0, before(x, view[0])); index <= stop; index += 1) {
        let sum = 0;
        for (const layer of shown) sum += layer.y[index];
        top = Math.max(top, sum);
      }
    } else {
      for (const layer of shown) {
        // points are not in order of time
        const ordered = this.picture.form !== 'points';
        const first = ordered ? Math.max(0, before(layer.x, view[0])) : 0;
        const stop = ordered ? before(layer.x, view[1]) : layer.x.length - 1;
        for (let index = first; index <= stop; index += 1) top = Math.max(top, layer.y[index]);
      }
    }
    return (top || 1) * 1.04;
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.canvas.clientWidth * ratio;
    this.canvas.height = this.canvas.clientHeight * ratio;
    const pen = this.canvas.getContext('2d');
    pen.scale(ratio, ratio);
    const shown = this.layers.filter(each => each.shown);
    const top = this.top(shown);
    const { width, height } = this;   // read once: each access makes the browser lay out the page
    const place = {
      x: time => MARGIN.left + (time - view[0]) / (view[1] - view[0]) * width,
      y: value => MARGIN.top + (1 - value / top) * height,
    };
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, MARGIN.top, this.width, this.height);
    pen.clip();
    this[this.picture.form](pen, place, shown);
    this.drawSelection(pen, place);
    pen.restore();
    this.axes(pen, place, top);
  }

  drawSelection(pen, place) {
    if (this.selection) {
      pen.fillStyle = '#3b82f640';
      const [from, to] = this.selection.map(place.x);
      pen.fillRect(Math.min(from, to), MARGIN.top, Math.abs(to - from), this.height);
    }
  }

  axes(pen, place, top) {
    pen.strokeStyle = '#999';
    pen.fillStyle = '#444';
    pen.font = '12px system-ui, sans-serif';
    pen.strokeRect(MARGIN.left, MARGIN.top, this.width, this.height);
    const [times, decimals] = ticks(view[0], view[1], 8);
    pen.textAlign = 'center';
    for (const time of times) {
      pen.fillText(time.toFixed(decimals), place.x(time), MARGIN.top + this.height + 15);
      pen.fillRect(place.x(time), MARGIN.top + this.height, 1, 4);
    }
    pen.fillText('time [s]', MARGIN.left + this.width / 2, MARGIN.top + this.height + 30);
    const [levels, digits] = ticks(0, top, 5);
    pen.textAlign = 'right';
    for (const level of levels) {
      pen.fillText(level.toFixed(digits), MARGIN.left - 7, place.y(level) + 4);
      pen.fillRect(MARGIN.left - 4, place.y(level), 4, 1);
    }
    pen.save();
    pen.translate(13, MARGIN.top + this.height / 2);
    pen.rotate(-Math.PI / 2);
    pen.textAlign = 'center';
    pen.fillText(this.picture.y_label, 0, 0);
    pen.restore();
  }

  stack(pen, place, shown) {
    if (!shown.length) return;
    const x = shown[0].x;
    const first = Math.max(0, before(x, view[0])), stop = before(x, view[1]);
    const end = index => index + 1 < x.length ? x[index + 1] : 2 * x[index] - x[index - 1];
    const low = new Float32Array(x.length);
    for (const layer of shown) {
      pen.fillStyle = layer.colour;
      pen.beginPath();
      for (let index = first; index <= stop; index += 1) {
        pen.lineTo(place.x(x[index]), place.y(low[index] + layer.y[index]));
        pen.lineTo(place.x(end(index)), place.y(low[index] + layer.y[index]));
      }
      for (let index = stop; index >= first; index -= 1) {
        pen.lineTo(place.x(end(index)), place.y(low[index]));
        pen.lineTo(place.x(x[index]), place.y(low[index]));
        low[index] += layer.y[index];
      }
      pen.fill();
    }
  }

  steps(pen, place, shown) { this.line(pen, place, shown, true); }
  lines(pen, place, shown) { this.line(pen, place, shown, false); }

  line(pen, place, shown, inSteps) {
    for (const { x, y, colour } of shown) {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.3;
      pen.beginPath();
      const stop = Math.min(x.length - 1, before(x, view[1]) + 1);
      for (let index = Math.max(0, before(x, view[0])); index <= stop; index += 1) {
        if (inSteps && index > 0) pen.lineTo(place.x(x[index]), place.y(y[index - 1]));
        pen.lineTo(place.x(x[index]), place.y(y[index]));
      }
      pen.stroke();
    }
  }

  points(pen, place, shown) {
    const count = shown.reduce((sum, layer) => sum + layer.x.length, 0);
    const size = count > 50000 ? 1 : count > 2000 ? 2 : 4;
    const columns = this.canvas.clientWidth;
    for (const { x, y, colour } of shown) {
      const covered = new Uint8Array(columns * this.canvas.clientHeight);   // most of many points coincide
      pen.fillStyle = colour;
      for (let index = 0; index < x.length; index += 1) {
        if (x[index] >= view[0] && x[index] <= view[1]) {
          const column = Math.round(place.x(x[index]) - size / 2), row = Math.round(place.y(y[index]) - size / 2);
          if (!covered[row * columns + column]) {
            covered[row * columns + column] = 1;
            pen.fillRect(column, row, size, size);
          }
        }
      }
    }
  }
}

function show(from, to) {
  const shortest = (whole[1] - whole[0]) * 1e-6;
  from = Math.max(whole[0], from);
  to = Math.min(whole[1], to);
  if (to - from >= shortest) view = [from, to];
  redraw();
}

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const plot of drawn) plot.draw();
    document.body.dataset.view = view.map(each => each.toFixed(4)).join(' ');
  });
}

pictures.forEach((picture, index) => drawn.push(new Plot(picture, document.getElementById(`picture-${index}`))));
whole = [0, Math.max(1e-6, ...drawn.flatMap(plot => plot.layers.map(layer => layer.x.reduce((a, b) => Math.max(a, b), 0))))];
view = whole;
window.addEventListener('resize', redraw);
redraw();
