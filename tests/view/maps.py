# SPDX-License-Identifier: Apache-2.0
"""What tests do on a map page: they read its state (window.fovea) and the pixels of its canvas, and use the pointer as
a reader does."""

import time

CANVAS = "canvas.matrix"


def ready(page):
    """Waits until all that the view needs has arrived and is drawn; returns the state."""
    page.wait_for_selector(CANVAS)
    page.evaluate("fovea.idle")
    return state(page)


def state(page):
    return page.evaluate("fovea.state")


def place(page, query, key):
    """Returns the pixel of the page at the middle of a pair."""
    box = page.locator(CANVAS).bounding_box()
    x, y = page.evaluate("([q, k]) => fovea.pixelOf(q, k)", [query, key])
    return box["x"] + x, box["y"] + y


def hover(page, query, key):
    """Moves the pointer to a pair, and returns the facts of the panel."""
    page.mouse.move(*place(page, query, key))
    page.evaluate("fovea.idle")
    return facts(page)


def facts(page):
    """Returns the panel's numbers by their names."""
    return dict(
        page.evaluate("""[...document.querySelectorAll('.panel > .facts > div')].map((row) =>
        [row.querySelector('dt').textContent, row.querySelector('dd').textContent])""")
    )


def number(text):
    return float(text.replace("\u2212", "-").replace("\u221e", "inf"))


# The pixels of a rectangle of the canvas, which stays as it is: a canvas that is read often is drawn differently.
READ = """(x, y, w, h) => {
  const source = document.querySelector('canvas.matrix'), copy = new OffscreenCanvas(w, h);
  const pen = copy.getContext('2d', {willReadFrequently: true});
  pen.drawImage(source, x, y, w, h, 0, 0, w, h);
  return pen.getImageData(0, 0, w, h).data;
}"""


def color(page, query, key):
    """Returns the (red, green, blue) of the canvas at the middle of a pair."""
    script = """([q, k]) => {
      const canvas = document.querySelector('canvas.matrix'), ratio = canvas.width / canvas.clientWidth;
      const [x, y] = fovea.pixelOf(q, k).map((at) => Math.floor(at * ratio));
      return [...(READ)(x, y, 1, 1)].slice(0, 3);
    }"""
    return tuple(page.evaluate(script.replace("READ", READ), [query, key]))


def brightness(page, box):
    """Returns the brightness (0 to 765) of the pixels of the canvas in [left, top, width, height], as rows."""
    script = """([x, y, w, h]) => {
      const data = (READ)(x, y, w, h);
      return Array.from({length: h}, (_, r) => Array.from({length: w}, (_, c) => {
        const at = 4 * (r * w + c);
        return data[at] + data[at + 1] + data[at + 2];
      }));
    }"""
    return page.evaluate(script.replace("READ", READ), box)


def hash_of(page):
    """Returns a number that depends on all pixels of the canvas."""
    script = """() => {
      const {width, height} = document.querySelector('canvas.matrix');
      let hash = 0;
      for (const level of (READ)(0, 0, width, height)) hash = (hash * 31 + level) | 0;
      return hash;
    }"""
    return page.evaluate(script.replace("READ", READ))


def address(page):
    """Returns the address that the browser shows. `page.url` is the address of the last event that Playwright read,
    and a loop that only sleeps reads none."""
    return page.evaluate("location.href")


def wait_until(check, seconds=5, every=0.05):
    """Waits until check() is true; returns its result."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "still not true"
        time.sleep(every)
    return found
