// SPDX-License-Identifier: Apache-2.0
//
// Number formats, as in C++: one for all numbers of a step (scene/trace/number_text.cc and
// StepNumbers in trace_model.cc), which the page needs for steps that it computes itself.

/**
 * The format of a step. `decimals` is negative for integers, `exponent` is the number of digits of
 * an exponent, `least` the smallest number shown as such ("0.0001"; smaller ones are "<0.0001"), and
 * `largest` the largest finite magnitude.
 * @typedef {{decimals: number, sci: boolean, exponent: number, least: string, largest: number}} NumberFormat
 */

const baseName = (name) => name.replace(/\[.*/, "");
const special = (x) => x === undefined ? "?" : Number.isNaN(x) ? "nan" : x < 0 ? "-inf" : "inf";

/** Returns `write(x, digits)` with ties to even, where toFixed and toExponential round them up. */
function toEven(write, x, digits) {
  const [longer, power] = write(x, digits + 1).split("e"), down = longer.replace(/\.?5$/, "");
  // A hundred digits show whether it is a tie: 0.25 is one, but 0.05 is 0.0500000000000000027...
  const tie = down !== longer && write(x, 100).replace(/e.*/, "").replace(/0+$/, "") === longer;
  if (!tie || !/[02468]$/.test(down)) return write(x, digits);
  return down + (power ? "e" + power : "");
}
/** toFixed with ties to even; keeps the sign of -0. */
function fixed(x, digits) {
  const minus = x < 0 || Object.is(x, -0) ? "-" : "";
  return minus + toEven((y, n) => y.toFixed(n), Math.abs(x), digits);
}
function scientific(x, digits, exponent = 2) {
  const text = toEven((y, n) => y.toExponential(n), Math.abs(x), digits);
  return (x < 0 || Object.is(x, -0) ? "-" : "") +
      text.replace(/\d+$/, (power) => power.padStart(exponent, "0"));
}
/** Formats a number with at most four digits, as "%.4g" does. */
function brief(x) {
  const [mantissa, power] = scientific(x, 3).split("e");
  return Number(power) < -4 || Number(power) > 3 ? mantissa.replace(/\.?0+$/, "") + "e" + power
      : String(Number(x.toPrecision(4)));
}
/** Formats a number as in the table of its step. */
function show({decimals, sci, exponent, least}, x) {
  if (!Number.isFinite(x)) return special(x);
  if (least && Math.abs(x) < Number(least) / 2) return x === 0 ? "0" : (x > 0 ? "<" : ">-") + least;
  if (sci) return scientific(x, Math.max(decimals, 0), exponent);
  return decimals < 0 && x === 0 ? "0" : fixed(x, Math.max(decimals, 0));
}

/** Returns the shortest text d.ddde+x that identifies a number of its type. */
function shortest(x, single) {
  for (let digits = 0; single && digits < 9; ++digits) {
    const text = x.toExponential(digits);
    if (Math.fround(Number(text)) === x) return text;
  }
  return x.toExponential();
}

/** Returns all numbers, or of more than 10,000 an even sample, the smallest and the largest. */
function typicalNumbers(values) {
  const every = values.length > 10000 ? Math.floor(values.length / 10000) : 1;
  if (every === 1 && values.length <= 10000) return values;
  let smallest = 0, largest = 0;
  for (const x of values) {
    if (!Number.isFinite(x) || x === 0) continue;
    if (smallest === 0 || Math.abs(x) < Math.abs(smallest)) smallest = x;
    if (Math.abs(x) > Math.abs(largest)) largest = x;
  }
  return [...values.filter((_, i) => i % every === 0), smallest, largest];
}

/**
 * Returns the format of a step: integers without decimals, other numbers with the decimals that
 * they need, at most `precision`; scientific if at least half of them would appear as 0. Weights, and
 * exponentials of at most 1, are shares: never scientific.
 * @param {string} base the step's name without "[...]"
 * @param {Float64Array} values
 * @param {number[]} others further numbers that are shown in the same format
 * @returns {NumberFormat}
 */
function stepFormat(base, values, precision, single, others = []) {
  let largest = 0;
  for (const x of values) if (Number.isFinite(x) && Math.abs(x) > largest) largest = Math.abs(x);
  const share = base === "weights" || base === "exponentials" && largest <= 1;
  const format = {decimals: -1, sci: false, exponent: 2,
    least: share ? Number(`1e-${precision}`).toFixed(precision) : "", largest};
  if (base === "row_sums") return {...format, decimals: precision};
  const finite = [...typicalNumbers(values), ...others].filter(Number.isFinite);
  if (finite.every((x) => Number.isInteger(x) && Math.abs(x) < 1e9)) return format;

  const sizes = finite.map(Math.abs).filter((x) => x !== 0);
  const most = Math.max(...sizes), least = Math.min(...sizes), round = single ? Math.fround : Number;
  const lost = sizes.filter((x) => x < 0.5 * Number(`1e-${precision}`)).length;
  const suppress = share || 2 * lost < sizes.length;
  format.sci = most >= (single ? 1e6 : 1e8) ||
      (!suppress && (least < round(1e-4) || round(most / least) > 1000));
  let digits = 0;
  for (const x of finite) {
    const [mantissa, power] = shortest(x, single).split("e");
    const exact = mantissa.replace(/-?\d\.?/, "").length;
    let needed = format.sci ? exact : x === 0 ? 0 : Math.max(0, exact - Number(power));
    if (needed > precision) {
      const text = (format.sci ? scientific : fixed)(x, precision).replace(/e.*/, "");
      needed = precision === 0 ? 0 : text.replace(/0+$/, "").length - text.indexOf(".") - 1;
    }
    digits = Math.max(digits, needed);
    format.exponent = Math.max(format.exponent, power.length - 1);
  }
  format.decimals = digits;
  return format;
}
