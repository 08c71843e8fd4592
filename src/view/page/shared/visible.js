// SPDX-License-Identifier: Apache-2.0
//
// Tokens as text that can be seen, as on other pages (text/html_escape.h): control characters as
// pictures, other invisible characters as escapes, and a token of spaces as open boxes.

const OPEN_BOX = "\u2423";
const INVISIBLE =
    /(?![\u200c\u200d])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u3164\uffa0\u17b4\u17b5\ufdd0-\ufdef]|[\u{fffe}\u{ffff}\u{1fffe}\u{1ffff}\u{10fffe}\u{10ffff}]/gu;

/** Returns an invisible character as a picture or an escape. */
function shown(/** @type {string} */ character) {
  const code = /** @type {number} */ (character.codePointAt(0));
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return code === 0x7f ? "\u2421" : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** Returns `text` with invisible characters replaced. */
export const visible = (/** @type {string} */ text) =>
  /^ *$/.test(text) ? OPEN_BOX.repeat(text.length) : text.replace(INVISIBLE, shown);

/** Returns visible(text) with at most `most` characters, the last of which is an ellipsis if more are left out. */
export function shorten(/** @type {string} */ text, most = 24) {
  // A code point has at most two units, and enough of them are cut before they are replaced.
  const letters = [...visible(text.slice(0, 2 * most + 2))];
  return letters.length > most ? letters.slice(0, most - 1).join("").trimEnd() + "\u2026" : letters.join("");
}
