// SPDX-License-Identifier: Apache-2.0
//
// A text of many tokens in a box that scrolls. Only the paragraphs near the view have elements; the
// others keep their heights. Tokens are text nodes, broken into lines by the browser.

import {make, whole} from "../shared/dom.js";
import {shorten, visible} from "../shared/visible.js";

/** @typedef {{first: number, end: number, node: HTMLElement, filled: boolean}} Paragraph tokens [first, end) */
/** @typedef {{first: number, end: number, node: HTMLElement, state: "waiting" | "asked" | "ready"}} Block tokens that are requested at once */

const BLOCK = 4096, LEAST = 128, MOST = 384, LONGEST = 300;
const LINE = 32, LETTER = 8.5;  // pixels, for heights before they are known
const NO_GAP_BEFORE = /^(##|[\u3001-\u30ff\u3400-\u9fff\uac00-\ud7a3\uff00-\uffef\u0e00-\u0eff]|[.,;:!?)\]}'\u2019\u201d\u3002%]+$)/;
const MARKED = /^[\u0120\u2581]/;  // beginnings of words in byte-level BPE and SentencePiece

/**
 * Returns how the tokens of a text are separated: by their own spaces, by marks of word beginnings, or
 * not at all, in which case words are set apart.
 * @returns {(token: string) => boolean} whether there is a gap before a token
 */
function gapsOf(/** @type {string[]} */ tokens) {
  if (tokens.some((token) => /\S\s|\s\S/.test(token))) return () => false;
  if (tokens.some((token) => MARKED.test(token))) return (token) => MARKED.test(token);
  return (token) => !NO_GAP_BEFORE.test(token);
}
/** Returns where a paragraph that begins at `first` ends: after a line break or a sentence, if there is one. */
function paragraphEnd(/** @type {string[]} */ tokens, /** @type {number} */ first) {
  if (first + MOST >= tokens.length) return tokens.length;
  for (const mark of [/\n\s*$/, /[.!?\u3002]["'\u201d]?\s*$/]) {
    for (let i = first + MOST; i > first + LEAST; --i) if (mark.test(tokens[i - 1])) return i;
  }
  return first + (LEAST + MOST) / 2;
}

export class TextFlow {
  /**
   * @param {{label: string, length: number, load: ((position: number) => Promise<string[]>) | null,
   *   paint: (span: HTMLElement, position: number) => void, failed: (error: unknown) => void}} options
   *   `load` returns the 4,096 tokens around a position; null: there are only positions. `paint` sets the style of a token.
   */
  constructor(options) {
    this.options = options;
    this.length = options.length;
    this.node = make("div", {class: "text-flow", tabindex: 0, role: "application", "aria-roledescription": "text", "aria-label": options.label});
    /** @type {Map<Element, Paragraph>} */
    this.paragraphs = new Map();
    /** @type {Map<number, string[]>} */
    this.tokens = new Map();
    /** @type {((token: string) => boolean) | null} */
    this.gap = null;
    this.seen = new IntersectionObserver((entries) => entries.forEach(({target, isIntersecting}) => this.scrolled(target, isIntersecting)),
        {root: this.node, rootMargin: "60% 0px"});
    /** @type {Block[]} */
    this.blocks = [];
    for (let first = 0; first < this.length; first += BLOCK) {
      const end = Math.min(first + BLOCK, this.length), node = make("div", {class: "block", style: `height:${this.heightOf(5 * (end - first))}px`});
      this.blocks.push({first, end, node, state: "waiting"});
      this.seen.observe(node);
    }
    this.node.append(...this.blocks.map(({node}) => node));
  }

  /** Returns the estimated height of so many letters. */
  heightOf(/** @type {number} */ letters) {
    const across = Math.max(200, (this.node.clientWidth || 700) - 40);
    return Math.ceil(letters * LETTER / across) * LINE;
  }
  /** Returns a token; undefined until it has arrived. */
  at(/** @type {number} */ position) {
    return this.options.load ? this.tokens.get(Math.floor(position / BLOCK))?.[position % BLOCK] : whole(position);
  }

  scrolled(/** @type {Element} */ target, /** @type {boolean} */ near) {
    const paragraph = this.paragraphs.get(target);
    if (paragraph) {
      if (near) this.fill(paragraph);
      else this.empty(paragraph);
    } else if (near) {
      const block = this.blocks.find(({node}) => node === target);
      if (block) this.load(block).catch(this.options.failed);
    }
  }
  /** Requests the tokens of a block and divides them into paragraphs. */
  async load(/** @type {Block} */ block) {
    if (block.state !== "waiting") return;
    block.state = "asked";
    const {first, end} = block;
    let tokens;
    try {
      tokens = this.options.load ? await this.options.load(first) : Array.from({length: end - first}, (_, i) => whole(first + i));
    } catch (error) {
      block.state = "waiting";
      throw error;
    }
    if (tokens.length < end - first) {
      block.state = "waiting";
      return;
    }
    this.tokens.set(first / BLOCK, tokens);
    this.gap ??= gapsOf(tokens);
    block.state = "ready";
    block.node.style.height = "";
    this.seen.unobserve(block.node);
    for (let i = 0; i < tokens.length;) {
      const next = paragraphEnd(tokens, i), letters = tokens.slice(i, next).reduce((sum, token) => sum + Math.min(token.length, LONGEST), 0);
      const node = make("p", {dir: "auto", style: `height:${this.heightOf(letters)}px`});
      this.paragraphs.set(node, {first: first + i, end: first + next, node, filled: false});
      block.node.append(node);
      this.seen.observe(node);
      i = next;
    }
  }
  fill(/** @type {Paragraph} */ paragraph) {
    if (paragraph.filled) return;
    paragraph.filled = true;
    const parts = [];
    for (let i = paragraph.first; i < paragraph.end; ++i) {
      const token = /** @type {string} */ (this.at(i)), gap = !this.options.load || this.gap?.(token);
      // Spaces around a word are not coloured.
      const [, before, word, after] = /** @type {string[]} */ (/^( *)(.*?)( *)$/s.exec(/^ *$/.test(token) ? visible(token) : token));
      const span = make("span", {class: gap ? "token gap" : "token", "data-token": i}, shorten(word, LONGEST));
      this.options.paint(span, i);
      parts.push(before, span, after, /\n/.test(token) ? make("br") : make("wbr"));
    }
    paragraph.node.style.height = "";
    paragraph.node.replaceChildren(...parts);
  }
  empty(/** @type {Paragraph} */ paragraph) {
    if (!paragraph.filled) return;
    paragraph.filled = false;
    paragraph.node.style.height = `${paragraph.node.offsetHeight}px`;
    paragraph.node.replaceChildren();
  }

  /** Paints all tokens that have elements. */
  repaint() {
    for (const paragraph of this.paragraphs.values()) {
      if (!paragraph.filled) continue;
      for (const span of paragraph.node.getElementsByTagName("span")) this.options.paint(span, Number(span.dataset.token));
    }
  }
  /** Returns the element of a token, if it has one. @returns {HTMLElement | null} */
  spanOf(/** @type {number} */ position) {
    return this.node.querySelector(`[data-token="${position}"]`);
  }
  /** Returns the position of the token of an event, or null. */
  positionOf(/** @type {Event} */ event) {
    const span = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest?.("[data-token]"));
    return span && this.node.contains(span) ? Number(span.dataset.token) : null;
  }
  /** Returns the first token in view. */
  get top() {
    const {top} = this.node.getBoundingClientRect();
    for (const paragraph of this.paragraphs.values()) {
      if (!paragraph.filled || paragraph.node.getBoundingClientRect().bottom < top) continue;
      for (const span of paragraph.node.getElementsByTagName("span")) {
        if (span.getBoundingClientRect().bottom > top + 4) return Number(span.dataset.token);
      }
    }
    return 0;
  }
  /** Scrolls to a token, whose paragraph is filled first. */
  async reveal(/** @type {number} */ position, /** @type {ScrollLogicalPosition} */ block = "nearest") {
    const found = this.blocks[Math.floor(position / BLOCK)];
    if (!found) return;
    if (found.state !== "ready") await this.load(found);
    for (const paragraph of this.paragraphs.values()) {
      if (position >= paragraph.first && position < paragraph.end) this.fill(paragraph);
    }
    // The paragraphs around it have their heights when they are filled, which moves it.
    for (let round = 0; round < 3; ++round) {
      this.spanOf(position)?.scrollIntoView({block, inline: "nearest"});
      if (!this.fillView()) return;
    }
  }
  /** Fills the paragraphs in view; returns whether there were any. */
  fillView() {
    const {top, bottom} = this.node.getBoundingClientRect(), empty = [...this.paragraphs.values()].filter(({filled, node}) => {
      if (filled) return false;
      const box = node.getBoundingClientRect();
      return box.bottom > top && box.top < bottom;
    });
    for (const paragraph of empty) this.fill(paragraph);
    return empty.length > 0;
  }
  /** Returns the token above or below another, or null at the ends of the elements. */
  beside(/** @type {number} */ position, /** @type {number} */ down) {
    const from = this.spanOf(position)?.getClientRects()[0];
    if (!from) return null;
    const x = (from.left + from.right) / 2;
    let line = null, best = null, least = Infinity;
    for (let i = position + down; i >= 0 && i < this.length && Math.abs(i - position) < 2 * MOST; i += down) {
      const box = this.spanOf(i)?.getClientRects()[0];
      if (!box) break;
      if (Math.abs(box.top - from.top) < LINE / 2) continue;
      line ??= box.top;
      if (Math.abs(box.top - line) > LINE / 2) break;
      const far = Math.abs((box.left + box.right) / 2 - x);
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }
  close() {
    this.seen.disconnect();
  }
}
