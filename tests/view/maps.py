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


def color(page, query, key):
    """Returns the (red, green, blue) of the canvas at the middle of a pair."""
    return tuple(
        page.evaluate(
            """([q, k]) => {
          const canvas = document.querySelector('canvas.matrix'), ratio = canvas.width / canvas.clientWidth;
          const [x, y] = fovea.pixelOf(q, k).map((at) => Math.floor(at * ratio));
          return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data.slice(0, 3)];
        }""",
            [query, key],
        )
    )


def brightness(page, box):
    """Returns the brightness (0 to 765) of the pixels of the canvas in [left, top, width, height], as rows."""
    return page.evaluate(
        """([x, y, w, h]) => {
      const {data} = document.querySelector('canvas.matrix').getContext('2d').getImageData(x, y, w, h);
      return Array.from({length: h}, (_, r) => Array.from({length: w}, (_, c) => {
        const at = 4 * (r * w + c);
        return data[at] + data[at + 1] + data[at + 2];
      }));
    }""",
        box,
    )


def hash_of(page):
    """Returns a number that depends on all pixels of the canvas."""
    return page.evaluate("""(() => {
      const canvas = document.querySelector('canvas.matrix');
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let hash = 0;
      for (let i = 0; i < data.length; ++i) hash = (hash * 31 + data[i]) | 0;
      return hash;
    })()""")


def wait_until(check, seconds=5, every=0.05):
    """Waits until check() is true; returns its result."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "still not true"
        time.sleep(every)
    return found
