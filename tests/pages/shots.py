# SPDX-License-Identifier: Apache-2.0
"""Writes full-page screenshots of pages, at 1,280 and 390 px, light and dark, into build/pages/shots.

tests/pages/run shots                            all example scenes and the sentences of browser.py
tests/pages/run shots 001_your_journey my.json   these
  --to FOLDER         another folder
  --size desktop|phone, --scheme light|dark      only these
  --word N            first choose word N (counted from 0)
  --click SELECTOR    first click an element; may be repeated
  --screen            only what a reader sees without scrolling (after --click, where the page then is)

An argument may also be a page (.html), so that lessons and decks can be looked at as well.
"""

import argparse
import pathlib

import browser as pages


def options():
    parser = argparse.ArgumentParser(prog="tests/pages/run shots")
    parser.add_argument("names", nargs="*", metavar="SCENE")
    parser.add_argument("--to", type=pathlib.Path, default=pages.BUILD / "shots")
    parser.add_argument("--size", choices=list(pages.VIEWPORTS))
    parser.add_argument("--scheme", choices=pages.SCHEMES)
    parser.add_argument("--word", type=int)
    parser.add_argument("--click", action="append", default=[])
    parser.add_argument("--screen", action="store_true")
    return parser.parse_args()


def shoot(page, path, chosen, target):
    page.goto(path.resolve().as_uri())
    if chosen.word is not None:
        page.locator(".chips:visible button").nth(chosen.word).click()
    for selector in chosen.click:
        page.locator(selector).first.click()
    pages.settle(page)
    page.screenshot(path=target, full_page=not chosen.screen)


def main():
    chosen = options()
    chosen.to.mkdir(parents=True, exist_ok=True)
    paths = [
        pathlib.Path(name) if name.endswith(".html") else pages.render(name)
        for name in chosen.names or pages.page_names()
    ]
    with pages.chromium() as browser:
        for size in [chosen.size] if chosen.size else pages.VIEWPORTS:
            for scheme in [chosen.scheme] if chosen.scheme else pages.SCHEMES:
                context = browser.new_context(viewport=pages.VIEWPORTS[size], color_scheme=scheme, offline=True)
                page = context.new_page()
                for path in paths:
                    target = chosen.to / f"{path.stem}-{size}-{scheme}.png"
                    shoot(page, path, chosen, target)
                    print(target)
                context.close()


if __name__ == "__main__":
    main()
