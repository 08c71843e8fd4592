// SPDX-License-Identifier: Apache-2.0
//
// One head as the map shows it: what it is, where its tiles and tokens come from, and the view of it.

import {Tiles} from "./tiles.js";
import {Tokens} from "../shared/tokens.js";
import {Viewport} from "./viewport.js";

export class HeadView {
  /**
   * The view and tokens of the head `before` stay if they fit.
   * @param {import("../shared/api.js").Api} api
   * @param {import("../shared/api.js").InputEntry} entry
   * @param {import("../shared/api.js").LayerEntry} layer
   * @param {number} head
   * @param {import("../shared/api.js").HeadStatus} status
   * @param {{arrived: () => void, failed: (error: unknown) => void}} events
   * @param {HeadView | null} before
   */
  constructor(api, entry, layer, head, status, events, before = null) {
    /** @type {import("../shared/api.js").InputEntry} */
    this.entry = entry;
    /** @type {import("../shared/api.js").LayerEntry} */
    this.layer = layer;
    this.head = head;
    /** @type {import("../shared/api.js").HeadStatus} */
    this.status = status;
    /** The name of the head in the cache. */
    this.name = `${entry.id}/${layer.label}.${head}`;
    this.api = api.head(entry.id, `${layer.label}.${head}`);
    this.tiles = new Tiles(this.api, this.name, events, () => this.status.lse_known, ({z, y}) => {
      const {base_level: base, tile_side: side, row_block: block, blocks} = this.status, rows = side * 2 ** z;
      return z < base ? "" : blocks.slice(Math.floor(y * rows / block), Math.ceil((y + 1) * rows / block));
    });
    const known = before && before.entry === entry && before.layer === layer ? before : null;
    /** @type {Tokens} */
    this.queryTokens = known?.queryTokens ?? new Tokens(api, entry.id, layer, "query", events.arrived);
    /** @type {Tokens} */
    this.keyTokens = known?.keyTokens ?? new Tokens(api, entry.id, layer, "key", events.arrived);
    const named = layer.query_tokens || layer.key_tokens;
    const fits = before !== null && before.layer.queries === layer.queries && before.layer.keys === layer.keys;
    /** @type {Viewport} */
    this.view = before && fits ? before.view : new Viewport(layer.queries, layer.keys, named);
    this.view.tokens = named;
    if (before && !fits) {
      this.view.resize(before.view.width, before.view.height);
      this.view.fit();
    }
    /** Whether positions of the head before are positions of this one. */
    this.fits = fits;
  }

  /** Asks how far the pass is, and requests the tiles that have changed with it. */
  async follow() {
    this.status = await this.api.status();
    this.tiles.follow();
  }

  /** The pair in the middle of the view. */
  centre() {
    const cut = (/** @type {number} */ value, /** @type {number} */ most) => Math.min(most - 1, Math.max(0, Math.floor(value)));
    return {query: cut(this.view.query, this.layer.queries), key: cut(this.view.key, this.layer.keys)};
  }
}
