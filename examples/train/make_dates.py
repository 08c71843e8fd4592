#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pairs of dates: as people write them in twelve languages, and in ISO 8601.

  en-US: 03/04/05               2005-03-04
  en-GB: 03/04/05               2005-04-03
  ja: 05/03/04                  2005-03-04
  es: viernes, 4 de marzo de 2005
                                2005-03-04

Names and formats come from the Unicode CLDR through Babel: for each language, its full, long, medium and short formats
and those of SKELETONS, with and without the weekday. Each numeric format is also used with a two-digit year, and with
two-digit year, month and day. A source starts with its language, which decides what 03/04/05 means.

Years run from 1950 to 2049, so a two-digit year is 19.. from 50 on and 20.. below. No two pairs have the same date, so
the dates of the test set are held out. Languages and formats are not held out: every name of a month or weekday occurs
in the training pairs, and a month's name occurs equally often in each language. The alignment covers year, month and
day, but not the weekday, which adds no information.
"""

from __future__ import annotations

import datetime
import random

import pairs
from pairs import Pair, Range

pairs.require("babel")
from babel import Locale  # noqa: E402
from babel.dates import DateTimeFormat, tokenize_pattern  # noqa: E402

LANGUAGES = ("de", "el", "en-GB", "en-US", "es", "fi", "fr", "hu", "it", "ja", "pl", "tr")
LENGTHS = ("full", "long", "medium", "short")
SKELETONS = ("yMMMEd", "yMMMd", "yMEd", "yMd")
FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)

# The positions of the fields of CLDR patterns in an ISO date.
YEAR, MONTH, DAY = Range(0, 4), Range(5, 7), Range(8, 10)
PLACES = {"y": YEAR, "M": MONTH, "L": MONTH, "d": DAY}
MONTHS_AND_WEEKDAYS = ("M", "L", "E", "c")

# The parts of a CLDR pattern. A field is its letter and the repeated letter, such as ("M", "MMMM"); a literal text is
# "" and the text.
Parts = tuple[tuple[str, str], ...]


def parts_of(pattern: str) -> Parts:
    # Babel's tokens: a text, or a letter and its repeat count.
    tokens = (token for _, token in tokenize_pattern(pattern))
    return tuple(("", token) if isinstance(token, str) else (token[0], token[0] * token[1]) for token in tokens)


def in_numbers(parts: Parts) -> bool:
    """Returns whether day, month and year are numbers separated by punctuation. A weekday is allowed."""
    by_name = any(letter in ("M", "L") and len(text) > 2 for letter, text in parts)
    words = any(letter == "" and any(map(str.isalpha, text)) for letter, text in parts)
    return not by_name and not words


def with_two_digits(parts: Parts, letters: str) -> Parts:
    return tuple((letter, 2 * letter if letter and letter in letters else text) for letter, text in parts)


def formats(language: str) -> list[Parts]:
    """Returns all formats of a language, without duplicates."""
    locale = Locale.parse(language, sep="-")
    patterns = [locale.date_formats[length] for length in LENGTHS]
    patterns += [locale.datetime_skeletons[skeleton] for skeleton in SKELETONS]
    found = [parts_of(pattern.pattern) for pattern in patterns]
    numbers = [parts for parts in found if in_numbers(parts)]
    found += [with_two_digits(parts, letters) for letters in ("y", "yMd") for parts in numbers]
    return list(dict.fromkeys(found))


def date_pair(date: datetime.date, language: str, parts: Parts) -> Pair:
    """Returns the pair of a date. The source is built field by field, which gives the alignment."""
    fields = DateTimeFormat(date, Locale.parse(language, sep="-"))
    source, alignment = f"{language}: ", {}
    for letter, text in parts:
        begin = len(source)
        source += fields[text] if letter else text
        if letter in PLACES:
            alignment[PLACES[letter]] = Range(begin, len(source))
    return Pair(source, date.isoformat(), alignment)


def names(date: datetime.date, language: str, parts: Parts) -> set[tuple[str, str]]:
    """Returns the names of the month and the weekday, each with its language, unless they are numbers."""
    fields = DateTimeFormat(date, Locale.parse(language, sep="-"))
    texts = (fields[text] for letter, text in parts if letter in MONTHS_AND_WEEKDAYS)
    return {(language, text) for text in texts if not text.isdecimal()}


def make(count: int, test: int, generator: random.Random) -> list[Pair]:
    days = (LAST - FIRST).days + 1
    if count > days:
        raise ValueError(f"{count} pairs are more than the {days} dates from {FIRST} to {LAST}")
    dates = pairs.shuffled((FIRST + datetime.timedelta(day) for day in range(days)), generator)[:count]
    kinds = pairs.shuffled(((language, parts) for language in LANGUAGES for parts in formats(language)), generator)

    # Each month cycles through all formats, so that its name occurs equally often in each language. Each month starts
    # at another format, so that the test pairs have all formats.
    turn = {month: month * len(kinds) // 12 for month in range(1, 13)}
    drawn = []
    for date in dates:
        drawn.append((date, *kinds[turn[date.month] % len(kinds)]))
        turn[date.month] += 1

    known = set().union(*(names(*one) for one in drawn[test:]))
    months_and_weekdays = [datetime.date(2001, month, 1) for month in range(1, 13)]
    months_and_weekdays += [datetime.date(2001, 1, day) for day in range(1, 8)]
    for language, parts in kinds:
        for date in months_and_weekdays:
            if missing := names(date, language, parts) - known:
                raise ValueError(f"{sorted(missing)} not among the {count - test} pairs to learn from: take more")
    return [date_pair(*one) for one in drawn]


if __name__ == "__main__":
    pairs.main("dates", __doc__, make, train=6000)
