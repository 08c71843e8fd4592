// SPDX-License-Identifier: Apache-2.0
//
// Requests to the server (docs/view.md). Each carries the token that arrived in the address. A
// failure is an ApiError whose message is a sentence for the page.

/**
 * A number of the server. Infinities and nan, which JSON does not have, are texts.
 * @typedef {number | "-inf" | "inf" | "nan"} Num
 *
 * @typedef {{label: string, layer: number, kind: string, batch: number, name: string, heads: number[],
 *   queries: number, keys: number, head_dim: number, dtype: string, mask: string, score: string,
 *   query_tokens: boolean, key_tokens: boolean, values: boolean, same_tokens: boolean}} LayerEntry
 * @typedef {{id: string, name: string, path: string, kind: "scene" | "tensors" | "recording",
 *   fingerprint: string, title: string, model: string, source: string, changed: string | null, layers: LayerEntry[]}} InputEntry
 * @typedef {{version: string, embed: boolean, memory: number, inputs: InputEntry[]}} InputList
 *
 * @typedef {{state: "idle" | "running" | "paused" | "done", done: number, total: number,
 *   seconds_left: number | null}} PassProgress
 * @typedef {{head: string, queries: number, keys: number, levels: number, base_level: number,
 *   mean_levels: number, tile_side: number, row_block: number, lse_known: boolean, pass: PassProgress,
 *   blocks: string, largest: Num[], smallest: Num[]}} HeadStatus
 * @typedef {{query: number, key: number, score: Num, weight: Num, lse: Num, hidden: boolean,
 *   query_token: string | null, key_token: string | null}} Cell
 * @typedef {{query: number, token: string | null, lse: Num, visible: number, entropy: Num, maximum: Num,
 *   maximum_key: number, mean_distance: Num, first_key: Num,
 *   top: {key: number, weight: Num, token: string | null}[], powers: number[]}} Row
 * @typedef {{key: number, token: string | null, sum: Num, largest: Num,
 *   top: {query: number, weight: Num, token: string | null}[]}} Column
 * @typedef {{layer: string, names: string[],
 *   heads: {head: number, name: string, numbers: Num[]}[]}} HeadNumbers
 */

const KEY = "fovea-token";
const ROOT = "/api/v1/inputs";

/** Reads a number of the server. */
export const number = (/** @type {Num} */ value) =>
  typeof value === "number" ? value : value === "inf" ? Infinity : value === "-inf" ? -Infinity : NaN;

/** A request that failed. `status` is 0 if the server did not respond. */
export class ApiError extends Error {
  /**
   * @param {number} status HTTP's
   * @param {string} code such as "malformed"; "gone" without a response
   * @param {string} message a sentence
   * @param {string} argument the name of the argument at fault, or ""
   */
  constructor(status, code, message, argument = "") {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.argument = argument;
  }
}

/** Returns whether a request was ended by the page itself. */
export const isAbort = (/** @type {unknown} */ error) => error instanceof DOMException && error.name === "AbortError";

/** Returns a sentence for the page about a failure. */
export function inWords(/** @type {unknown} */ error) {
  if (!(error instanceof ApiError)) return String(error instanceof Error ? error.message : error);
  switch (error.code) {
    case "gone": return "The server does not respond.";
  }
  if (error.status === 401) return "This browser has not opened the address that fovea view printed. Open that first, then this page.";
  return error.message;
}

/** Returns the token in an address or fragment, or null. */
export const tokenIn = (/** @type {string} */ address) => /[#&]token=([0-9A-Za-z_-]+)/.exec(address)?.[1] ?? null;

function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}
function store(/** @type {string} */ token) {
  try {
    sessionStorage.setItem(KEY, token);
  } catch { /* the token lasts until the page is closed */ }
}

/**
 * Moves the token from the fragment to this tab's storage, and returns it ("" if there is none). With
 * `keep`, for a page in a frame, whose storage may be blocked, the fragment keeps it as well.
 */
export function takeToken(keep = false) {
  const given = tokenIn(location.hash);
  if (!given) return stored();
  store(given);
  if (!keep) {
    const rest = location.hash.slice(1).split("&").filter((part) => !part.startsWith("token=")).join("&");
    history.replaceState(history.state, "", location.pathname + location.search + (rest ? "#" + rest : ""));
  }
  return given;
}

/**
 * Returns this tab's token, or asks the other tabs of this origin for theirs: a copied link works in a
 * new tab. "" if there is none.
 * @param {boolean} keep as for takeToken()
 * @returns {Promise<string>}
 */
export async function findToken(keep = false, wait = 300) {
  const own = takeToken(keep);
  const channel = new BroadcastChannel(KEY);
  const token = own || await new Promise((resolve) => {
    const timer = setTimeout(() => resolve(""), wait);
    channel.onmessage = ({data}) => {
      if (typeof data?.token !== "string") return;
      clearTimeout(timer);
      resolve(data.token);
    };
    channel.postMessage({ask: true});
  });
  if (token && !own) store(token);
  channel.onmessage = ({data}) => {
    const known = stored();
    if (data?.ask && known) channel.postMessage({token: known});
  };
  return token;
}

/** The server as functions. All of them throw ApiError; an aborted one throws the AbortError of fetch. */
export class Api {
  constructor(/** @type {string} */ token) {
    this.token = token;
  }

  /** Takes the token of an address that a restarted server has printed. */
  adopt(/** @type {string} */ token) {
    this.token = token;
    store(token);
  }

  /**
   * @param {string} path from /api/v1
   * @param {RequestInit} options
   * @returns {Promise<Response>} a successful response
   */
  async request(path, options = {}) {
    let response;
    try {
      response = await fetch(path, {...options, headers: {"X-Fovea-Token": this.token}});
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new ApiError(0, "gone", "The server does not respond.");
    }
    if (response.ok) return response;
    const told = await response.json().then((body) => body?.error, () => null);
    throw new ApiError(response.status, told?.code ?? String(response.status),
        told?.message ?? `The server responded with status ${response.status}.`, told?.argument ?? "");
  }

  /** @returns {Promise<any>} */
  async json(/** @type {string} */ path, /** @type {RequestInit} */ options = {}) {
    const response = await this.request(path, options);
    return this.read(() => response.json());
  }

  /** @returns {Promise<ArrayBuffer>} */
  async bytes(/** @type {string} */ path, /** @type {RequestInit} */ options = {}) {
    const response = await this.request(path, options);
    return this.read(() => response.arrayBuffer());
  }

  /**
   * A connection may also end in the middle of a response.
   * @template T
   * @param {() => Promise<T>} read
   */
  async read(read) {
    try {
      return await read();
    } catch (error) {
      if (isAbort(error)) throw error;
      throw new ApiError(0, "gone", "The server does not respond.");
    }
  }

  /** @returns {Promise<any>} */
  post(/** @type {string} */ path, /** @type {object} */ body = {}) {
    return this.json(path, {method: "POST", body: JSON.stringify(body)});
  }

  /** @returns {Promise<InputList>} */
  inputs() {
    return this.json(ROOT);
  }
  /** @returns {Promise<InputEntry>} */
  input(/** @type {string} */ id) {
    return this.json(`${ROOT}/${encodeURIComponent(id)}`);
  }
  /**
   * Opens a changed file again.
   * @returns {Promise<InputEntry>}
   */
  reopen(/** @type {string} */ id) {
    return this.post(`${ROOT}/${encodeURIComponent(id)}/reopen`);
  }
  head(/** @type {string} */ id, /** @type {string} */ head) {
    return new HeadApi(this, `${ROOT}/${encodeURIComponent(id)}`, head);
  }
  /** @returns {Promise<HeadNumbers>} */
  heads(/** @type {string} */ id, /** @type {string} */ layer, /** @type {AbortSignal} */ signal = new AbortController().signal) {
    return this.json(`${ROOT}/${encodeURIComponent(id)}/heads?layer=${layer}`, {signal});
  }
  /** @returns {Promise<{first: number, tokens: string[]}>} */
  tokens(/** @type {string} */ id, /** @type {string} */ layer, /** @type {"query" | "key"} */ side,
      /** @type {number} */ begin, /** @type {number} */ end) {
    return this.json(`${ROOT}/${encodeURIComponent(id)}/tokens?layer=${layer}&side=${side}&range=${begin}:${end}`);
  }
  /** @returns {Promise<{count: number, positions: number[]}>} */
  find(/** @type {string} */ id, /** @type {string} */ layer, /** @type {"query" | "key"} */ side,
      /** @type {string} */ text, {after = -1, fold = true} = {}, /** @type {AbortSignal} */ signal = new AbortController().signal) {
    const from = after < 0 ? "" : `&after=${after}`;
    return this.json(`${ROOT}/${encodeURIComponent(id)}/find?layer=${layer}&side=${side}&text=` +
      `${encodeURIComponent(text)}&fold=${fold ? 1 : 0}${from}`, {signal});
  }
}

/** The requests about one head. */
export class HeadApi {
  /** @param {Api} api @param {string} input @param {string} head "13.2" */
  constructor(api, input, head) {
    this.api = api;
    this.path = `${input}/${head}`;
  }

  /** @returns {Promise<HeadStatus>} */
  status(/** @type {AbortSignal | undefined} */ signal = undefined) {
    return this.api.json(this.path, {signal});
  }
  /**
   * @param {"max" | "mean"} reduce @param {number} z @param {number} x @param {number} y
   * @param {AbortSignal | undefined} signal
   * @returns {Promise<ArrayBuffer>} a frame
   */
  tile(reduce, z, x, y, signal = undefined) {
    return this.api.bytes(`${this.path}/tile/${reduce}/${z}/${x}/${y}`, {signal});
  }
  /** @returns {Promise<Cell>} */
  cell(/** @type {number} */ query, /** @type {number} */ key, /** @type {AbortSignal | undefined} */ signal = undefined) {
    return this.api.json(`${this.path}/cell?query=${query}&key=${key}`, {signal});
  }
  /** @returns {Promise<Row>} */
  row(/** @type {number} */ query, /** @type {number} */ top, /** @type {AbortSignal | undefined} */ signal = undefined) {
    return this.api.json(`${this.path}/row?query=${query}&top=${top}`, {signal});
  }
  /** @returns {Promise<Column>} */
  column(/** @type {number} */ key, /** @type {number} */ top, /** @type {AbortSignal | undefined} */ signal = undefined) {
    return this.api.json(`${this.path}/column?key=${key}&top=${top}`, {signal});
  }
  /**
   * Returns weights averaged over some queries (or keys), for a range of keys (or queries). -1: hidden
   * in all of them.
   * @param {"query" | "key"} side @param {number[]} lines @param {[number, number] | null} range
   * @param {AbortSignal | undefined} signal
   */
  async weights(side, lines, range, signal = undefined) {
    const part = range ? `&range=${range[0]}:${range[1]}` : "";
    return new Float32Array(await this.api.bytes(`${this.path}/weights?${side}=${lines.join(",")}${part}`, {signal}));
  }
  /** Computes these rows before all others, and resumes a stopped pass. */
  startPass(/** @type {number} */ begin, /** @type {number} */ end) {
    return this.api.post(`${this.path}/pass`, {rows: `${begin}:${end}`});
  }
  stopPass() {
    return this.api.json(`${this.path}/pass`, {method: "DELETE"});
  }
  /** @returns {Promise<Response>} a file */
  export(/** @type {Record<string, string>} */ options) {
    return this.api.request(`${this.path}/export?${new URLSearchParams(options)}`);
  }
}
