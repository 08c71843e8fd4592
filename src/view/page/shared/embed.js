// SPDX-License-Identifier: Apache-2.0
//
// A page in the frame of a notebook: its address is known to the program that started the server, which can
// change it (`View.state` in Python). The server keeps one address for both sides. An address has a version,
// so that a page never overwrites one that it has not seen.

import {ApiError} from "./api.js";

const PATH = "/api/v1/state";
const INTERVAL = 250;       // milliseconds between two requests
const INTERVAL_GONE = 2000;  // while the server does not respond
const SETTLED = 1000;       // after which a page has normalised an address that it was given

/** Returns the address of the page without the token. */
function address() {
  const fragment = location.hash.slice(1).split("&").filter((part) => part && !part.startsWith("token=")).join("&");
  return location.pathname + (fragment ? `#${fragment}` : "");
}

/**
 * Exchanges the address with the server until close().
 * @param {import("./api.js").Api} api
 * @param {(path: string, fragment: string) => void} navigate shows another address
 */
export function follow(api, navigate) {
  let version = -1;  // none is known yet
  let known = "";    // the address of that version, as it is or as this page writes it
  let settles = -1;  // until then, changes of the address come from normalising one of another page
  let timer = 0;
  let closed = false;

  async function report(/** @type {string} */ shown) {
    try {
      const body = JSON.stringify({address: shown, after: version});
      version = (await api.json(PATH, {method: "PUT", body})).version;
      known = shown;
    } catch (error) {
      // Another address came first.
      if (!(error instanceof ApiError) || error.code !== "newer") throw error;
      await adopt();
    }
  }

  async function adopt() {
    const shown = address();
    const found = await api.json(PATH);
    if (found.version === version || closed) return;
    version = found.version;
    known = found.address;
    if (found.address === shown || found.address === "") return;
    // Otherwise two pages of different sizes would follow each other forever.
    settles = found.program ? -1 : performance.now() + SETTLED;
    const [path, fragment = ""] = found.address.split("#");
    navigate(path, fragment);
  }

  async function step() {
    let wait = INTERVAL;
    try {
      const shown = address();
      if (shown !== known && performance.now() < settles) known = shown;
      if (!document.hidden) await (version >= 0 && shown !== known ? report(shown) : adopt());
    } catch {
      wait = INTERVAL_GONE;  // the page itself says why
    }
    if (!closed) timer = setTimeout(step, wait);
  }

  step();
  return {
    close() {
      closed = true;
      clearTimeout(timer);
    },
  };
}
