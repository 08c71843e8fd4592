# SPDX-License-Identifier: Apache-2.0
"""Tests that the training pairs of examples/train have the properties stated in its README."""

import collections
import datetime
import itertools
import pathlib
import re

import pytest

DATA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train" / "data"
PARTS = ("train", "test")
RANGE = r"(\d+)-(\d+)"
RUN = re.compile(rf"{RANGE}=({RANGE}(?:\+{RANGE})*)")
YEAR, MONTH, DAY = (0, 4), (5, 7), (8, 10)


def pairs(name, part):
    """Returns [(source, target, {target range: [source ranges]})]."""
    text = (DATA / f"{name}.{part}.tsv").read_bytes().decode()
    assert text.endswith("\n")
    return [parse(line) for line in text.removesuffix("\n").split("\n")]


def parse(line):
    source, target, *columns = line.split("\t")
    assert source.strip() == source != ""
    assert target != ""
    assert len(columns) <= 1
    alignment = {}
    for text in columns[0].split(",") if columns else []:
        run = RUN.fullmatch(text)
        assert run, line
        begin, end, places = int(run[1]), int(run[2]), run[3]
        alignment[begin, end] = [tuple(map(int, place.split("-"))) for place in places.split("+")]
    return source, target, alignment


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["dates", "numbers"])
def test_alignments_are_ordered_ranges_inside_both_texts(name, part):
    for source, target, alignment in pairs(name, part):
        runs = list(alignment)
        assert all(0 <= begin < end <= len(target) for begin, end in runs)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs))
        assert all(0 <= begin < end <= len(source) for places in alignment.values() for begin, end in places)


@pytest.mark.parametrize("name", ["dates", "numbers"])
def test_test_pairs_are_held_out(name):
    train, test = (pairs(name, part) for part in PARTS)
    assert len(test) == 1000
    assert not {target for _, target, _ in train} & {target for _, target, _ in test}
    assert not {source for source, _, _ in train} & {source for source, _, _ in test}


@pytest.mark.parametrize("name", ["dates", "numbers"])
def test_a_source_has_one_target(name):
    both = pairs(name, "train") + pairs(name, "test")
    assert len({source for source, _, _ in both}) == len(both)


@pytest.mark.parametrize("name", ["dates", "numbers"])
def test_training_has_all_languages_and_characters_of_the_test(name):
    train, test = ([source for source, _, _ in pairs(name, part)] for part in PARTS)
    language = re.compile(r"([a-z]{2}(-[A-Z]{2})?): \S")
    assert {language.match(source)[1] for source in test} == {language.match(source)[1] for source in train}
    assert set("".join(test)) <= set("".join(train))


@pytest.mark.parametrize("part", PARTS)
def test_dates_are_dates_from_1950_to_2049(part):
    for _, target, _ in pairs("dates", part):
        date = datetime.date.fromisoformat(target)
        assert date.isoformat() == target
        assert 1950 <= date.year <= 2049


@pytest.mark.parametrize("part", PARTS)
def test_aligned_year_month_and_day_equal_the_date(part):
    for source, target, alignment in pairs("dates", part):
        assert list(alignment) == [YEAR, MONTH, DAY]
        year, month, day = ("".join(source[slice(*place)] for place in places) for places in alignment.values())
        assert year in (target[:4], target[2:4])
        assert day in (target[8:], target[8:].removeprefix("0"))
        assert month in (target[5:7], target[5:7].removeprefix("0")) or not re.search(r"[\d\s]", month)
        rest = list(source)
        for ((begin, end),) in alignment.values():
            rest[begin:end] = "_" * (end - begin)
        assert not any(letter.isdecimal() for letter in rest)


def test_names_of_months_are_frequent_in_training():
    names = collections.Counter()
    for source, _, alignment in pairs("dates", "train"):
        ((begin, end),) = alignment[MONTH]
        names[source.partition(":")[0], source[begin:end]] += 1
    assert min(count for (_, month), count in names.items() if not month.isdecimal()) >= 8


@pytest.mark.parametrize("part", PARTS)
def test_aligned_digits_equal_the_number(part):
    """Each digit has few spellings per language, and only zero may have none."""
    spellings = {}
    for source, target, alignment in pairs("numbers", part):
        assert str(int(target)) == target
        assert int(target) < 1_000_000
        placed = {index for begin, end in alignment for index in range(begin, end)}
        assert placed == {index for index, digit in enumerate(target) if digit != "0" or target == "0"}
        for (begin, end), ((first, last),) in alignment.items():
            power = (len(target) - end) % 3
            spellings.setdefault((source[:2], target[begin:end], power), set()).add(source[first:last])
            assert source[first:last].strip(" ,-") == source[first:last]
    assert max(map(len, spellings.values())) <= 4
    assert {"fünf"} == spellings["de", "5", 0]
    assert {"fifty"} == spellings["en", "5", 1]
    assert {"quinientos"} == spellings["es", "5", 2]
    assert {"quatre-vingt-onze"} == spellings["fr", "91", 0]
    assert {"um", "mil"} == spellings["pt", "1", 0]
