#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pairs of numbers: spelled out, and in digits.

  en: five hundred and twenty-one      521
  de: fünfhunderteinundzwanzig         521
  fr: cinq cent vingt et un            521

Numbers from 0 to 999,999, spelled by num2words in five languages. A source starts with its language. Numbers below 100
are training pairs in every language. Each larger number occurs once, in one language; those of the test set are held
out. Zeros are drawn more often than other digits, so that numbers such as 40,007 are as common as 41,327. Numbers that
num2words spells wrongly are omitted (is_spelled_wrongly).

The alignment gives the words of each digit: "five hundred" as a whole, because it is one word in other languages, but
only "five" of "five thousand". If two digits share their words, as in "eleven" or "quatre-vingt-onze", both are aligned
with the whole. A zero inside a number has no words and is not aligned.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import pairs
from pairs import Item, Pair, Range

pairs.require("num2words")
from num2words import num2words  # noqa: E402

LANGUAGES = ("de", "en", "es", "fr", "pt")

# Separators between the words of two digits, which belong to neither; longest first.
CONNECTORS = {
    "de": ("und",),
    "en": (" and ", ", ", " ", "-"),
    "es": (" y ", " "),
    "fr": (" et ", " ", "-"),
    "pt": (" e ", " "),
}
# The word for thousand, after its multiplier. Without a multiplier it has no leading space.
THOUSAND = {"de": "tausend", "en": " thousand", "es": " mil", "fr": " mille", "pt": " mil"}

IN_EVERY_LANGUAGE = range(100)
MOST = 100_000
# The digit count of a number is drawn from LENGTHS, its digits from DIGITS. The first digit is never 0.
LENGTHS = (3, 4, 4, 5, 5, 5, 6, 6, 6, 6)
DIGITS = "0000123456789"

# Maps a digit's power of ten to the range of the digit's words.
Places = dict[int, Range]


def is_spelled_wrongly(number: int, language: str) -> bool:
    """Returns whether num2words misspells the number.

    Before "thousand", a final one is "ein" in German and "un" in Spanish. num2words writes "eins" and "uno" instead,
    except if the number of thousands is 1.
    """
    thousands = number // 1000
    if language == "de":
        return thousands > 1 and thousands % 100 == 1
    return language == "es" and thousands > 1 and thousands % 10 == 1 and thousands % 100 != 11


@functools.cache
def words(number: int, language: str) -> str:
    return str(num2words(number, lang=language))


def without_connector(text: str, language: str) -> str:
    """Returns the text without a connector at its end."""
    for connector in CONNECTORS[language]:
        if text.endswith(connector):
            return text.removesuffix(connector)
    return text


def digit_places(number: int, language: str) -> Places:
    """Returns the range of each digit's words. A zero inside a number has no words."""
    text = words(number, language)
    whole = Range(0, len(text))
    if number < 10:
        return {0: whole}
    power = 3 if number >= 1000 else 2 if number >= 100 else 1
    head, rest = divmod(number, 10**power)
    if not rest:
        return head_places(text, head, power, language)
    if text.endswith(words(rest, language)):
        begin = len(text) - len(words(rest, language))
        before = without_connector(text[:begin], language)
        after = {
            other: Range(begin + place.begin, begin + place.end)
            for other, place in digit_places(rest, language).items()
        }
        return head_places(before, head, power, language) | after
    if power > 1:
        raise AssertionError(f"{text!r} does not end with {words(rest, language)!r}")
    if text.endswith(tens := words(10 * head, language)):
        begin = len(text) - len(tens)
        return {0: Range(0, len(without_connector(text[:begin], language))), 1: Range(begin, len(text))}
    return {0: whole, 1: whole}


def head_places(text: str, number: int, power: int, language: str) -> Places:
    """Returns the ranges of the digits of `number` in `text`, which spells number * 10**power."""
    if power < 3:
        return {power: Range(0, len(text))}
    text = text.removesuffix(THOUSAND[language])
    if number == 1:
        return {3: Range(0, len(text))}
    # "quatre-vingt mille" lacks the final s of "quatre-vingts".
    if not words(number, language).startswith(text):
        raise AssertionError(f"{text!r} is not how {words(number, language)!r} begins")
    places = digit_places(number, language)
    return {other + 3: Range(place.begin, min(place.end, len(text))) for other, place in places.items()}


def number_pair(number: int, language: str) -> Pair:
    prefix, target = f"{language}: ", str(number)
    runs: list[tuple[Range, Range]] = []
    for power, place in sorted(digit_places(number, language).items(), reverse=True):
        at = len(target) - 1 - power
        begin = at
        if runs and runs[-1][1] == place:
            begin = runs.pop()[0].begin
        runs.append((Range(begin, at + 1), place))
    alignment = {run: Range(len(prefix) + place.begin, len(prefix) + place.end) for run, place in runs}
    return Pair(prefix + words(number, language), target, alignment)


def draw(generator: random.Random) -> int:
    def one(choices: Sequence[Item]) -> Item:
        return choices[int(generator.random() * len(choices))]

    length = one(LENGTHS)
    return int(one(DIGITS.lstrip("0")) + "".join(one(DIGITS) for _ in range(length - 1)))


def make(count: int, test: int, generator: random.Random) -> list[Pair]:
    known = [(number, language) for number in IN_EVERY_LANGUAGE for language in LANGUAGES]
    if not test + len(known) < count <= MOST:
        raise ValueError(f"--train takes more than {len(known)}, and with --test {MOST} at most")
    drawn: dict[int, str] = {}
    while len(drawn) < count - len(known):
        number, language = draw(generator), LANGUAGES[len(drawn) % len(LANGUAGES)]
        if not is_spelled_wrongly(number, language):
            drawn.setdefault(number, language)
    held_out, others = list(drawn.items())[:test], list(drawn.items())[test:]
    return [number_pair(*one) for one in held_out + pairs.shuffled(known + others, generator)]


if __name__ == "__main__":
    pairs.main("numbers", __doc__, make, train=3500)
