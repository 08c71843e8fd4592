// SPDX-License-Identifier: Apache-2.0
//
// Mouse and touch on a map: drag or one finger pans, wheel or two fingers zoom, a click or long press
// locks a cell, Shift and drag zooms to a rectangle.

/** @typedef {import("../map/page.js").MapPage} MapPage */

const STILL = 4;        // pixels that a click may move
const LONG = 500;       // milliseconds of a long press
const WHEEL = 0.0016;   // logarithm of the scale per pixel of the wheel
const PINCH = 0.01;     // the same for touch pads, which report pinching as a wheel with Ctrl

export class Pointer {
  /** @type {Map<number, {x: number, y: number}>} */
  #down = new Map();
  #start = {x: 0, y: 0};
  #moved = false;
  #distance = 0;
  #long = 0;
  #corner = /** @type {{query: number, key: number} | null} */ (null);

  /** @param {MapPage} page */
  constructor(page) {
    this.page = page;
    const {canvas} = page.surface;
    /** @type {[keyof HTMLElementEventMap, (event: any) => void][]} */
    const listeners = [["pointerdown", (event) => this.#press(event)], ["pointermove", (event) => this.#move(event)],
      ["pointerup", (event) => this.#release(event, true)], ["pointercancel", (event) => this.#release(event, false)],
      ["pointerleave", () => this.#leave()], ["wheel", (event) => this.#wheel(event)], ["dblclick", (event) => this.#double(event)]];
    for (const [name, listener] of listeners) canvas.addEventListener(name, listener, {passive: false});
  }

  #press(/** @type {PointerEvent} */ event) {
    if (event.button !== 0) return;
    const at = {x: event.offsetX, y: event.offsetY}, {page} = this;
    this.#down.set(event.pointerId, at);
    page.surface.canvas.setPointerCapture(event.pointerId);
    if (this.#down.size === 1) {
      this.#start = at;
      this.#moved = false;
      this.#corner = event.shiftKey ? this.#pair(at) : null;
      if (event.pointerType !== "mouse") {
        this.#long = setTimeout(() => {
          if (!this.#moved) page.selection.click(at.x, at.y);
          this.#moved = true;
        }, LONG);
      }
    } else {
      this.#moved = true;
      clearTimeout(this.#long);
      this.#distance = 0;
    }
  }

  /** The pair at a pixel, or the nearest one of the matrix. */
  #pair(/** @type {{x: number, y: number}} */ {x, y}) {
    const {view, layer} = this.page.of, cut = (/** @type {number} */ value, /** @type {number} */ most) => Math.min(most - 1, Math.max(0, Math.floor(value)));
    return {query: cut(view.queryAt(y), layer.queries), key: cut(view.keyAt(x), layer.keys)};
  }

  #move(/** @type {PointerEvent} */ event) {
    const {page} = this, at = {x: event.offsetX, y: event.offsetY}, before = this.#down.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") page.selection.hover(at.x, at.y);
      return;
    }
    if (Math.hypot(at.x - this.#start.x, at.y - this.#start.y) > STILL && !this.#moved) {
      this.#moved = true;
      clearTimeout(this.#long);
    }
    if (!this.#moved) return;
    if (this.#down.size === 2) {
      this.#down.set(event.pointerId, at);
      this.#pinch();
      return;
    }
    if (this.#corner) page.selection.setRectangle(this.#corner, this.#pair(at));
    else {
      page.of.view.pan(before.x - at.x, before.y - at.y);
      page.moved();
    }
    this.#down.set(event.pointerId, at);
  }

  #pinch() {
    const [a, b] = [...this.#down.values()], {page} = this;
    const distance = Math.hypot(a.x - b.x, a.y - b.y);
    if (this.#distance > 0 && distance > 0) {
      page.of.view.zoomAt((a.x + b.x) / 2, (a.y + b.y) / 2, this.#distance / distance);
      page.moved();
    }
    this.#distance = distance;
  }

  #release(/** @type {PointerEvent} */ event, /** @type {boolean} */ done) {
    const {page} = this;
    if (!this.#down.delete(event.pointerId)) return;
    clearTimeout(this.#long);
    this.#distance = 0;
    if (this.#down.size > 0) return;
    if (this.#corner && this.#moved && done) page.selection.zoomToRectangle();
    else if (!this.#moved && done) page.selection.click(event.offsetX, event.offsetY);
    this.#corner = null;
  }

  #leave() {
    if (this.#down.size === 0) this.page.selection.leave();
  }

  #wheel(/** @type {WheelEvent} */ event) {
    event.preventDefault();
    const pixels = event.deltaY * (event.deltaMode === 1 ? 33 : event.deltaMode === 2 ? 400 : 1);
    const {page} = this;
    page.of.view.zoomAt(event.offsetX, event.offsetY, Math.exp(Math.min(2, Math.max(-2, pixels * (event.ctrlKey ? PINCH : WHEEL)))));
    page.moved();
    page.selection.hover(event.offsetX, event.offsetY);
  }

  #double(/** @type {MouseEvent} */ event) {
    event.preventDefault();
    this.page.of.view.zoomAt(event.offsetX, event.offsetY, event.shiftKey ? 2 : 1 / 2);
    this.page.moved();
  }
}
