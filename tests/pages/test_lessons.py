# SPDX-License-Identifier: Apache-2.0
"""Lessons of `fovea learn`: questions, links between lessons."""

import functools
import subprocess

import browser as pages
import pytest
from conftest import violations

LESSONS = [path.stem.replace("_", "-") for path in sorted((pages.ROOT / "lessons").glob("*.json"))]


@functools.cache
def folder():
    """Writes all lessons."""
    path = pages.BUILD / "lessons"
    subprocess.run([pages.FOVEA, "learn", "--no-open", "--output", path], check=True, stdout=subprocess.DEVNULL)
    return path


@pytest.fixture
def learn(opener):
    """Opens a lesson by its number."""

    def open_lesson(number, size="desktop", scheme="light", fragment=""):
        page = opener.blank(size, scheme)
        page.goto((folder() / f"{LESSONS[number - 1]}.html").as_uri() + fragment)
        return page

    return open_lesson


def column(page, section, number):
    """Returns the cells of a column of the story's table."""
    return page.locator(f"#story-{section} tbody td:nth-child({number})").all_inner_texts()


def matrix(page, step):
    return page.locator(f"figure.map[data-step={step}] tbody").evaluate(
        "(body) => [...body.rows].map((line) => [...line.cells].slice(1).map((cell) => cell.textContent))"
    )


def answer(page, number, text):
    page.locator(f"#question-{number} input").fill(text)
    page.locator(f"#question-{number} input").press("Enter")


def result(page, number):
    return page.locator(f"#question-{number} .result").inner_text()


def reload(page, done):
    """Reloads a page until `done(page)`. Chromium stores answers in another process, and a reload may precede that."""
    for _ in range(5):
        page.reload()
        if done(page):
            return
    pytest.fail("a reload lost what was stored")


# ---- Questions


def test_asked_numbers_are_hidden_until_they_are_found(learn):
    page = learn(1)
    assert column(page, "scores", 3) == ["4", "2", "?", "0"]
    # Where queries are keys, the score of "cold" with "hot" is the same number.
    assert matrix(page, "scores")[0] == ["4", "2", "?", "0"]
    assert matrix(page, "scores")[2] == ["?", "-2", "4", "?"]
    page.locator("#story-scores tbody td", has_text="?").hover()
    assert page.locator("#made").inner_text().endswith("Question 1 asks for this number.")

    for wrong, said in (("4", "4 is too large."), ("-5", "-5 is too small."), ("cold", "Expected a number")):
        answer(page, 1, wrong)
        assert said in result(page, 1)
        assert column(page, "scores", 3)[2] == "?"
    answer(page, 1, "-4.004")
    assert result(page, 1) == "Right: -4."
    assert column(page, "scores", 3) == ["4", "2", "-4", "0"]
    assert matrix(page, "scores")[2] == ["-4", "-2", "4", "?"]
    page.locator("#story-scores tbody td:nth-child(3)").nth(2).hover()
    assert page.locator("#made").inner_text().endswith("= -4")


def test_answers_stay_when_another_word_is_chosen_and_when_the_page_is_opened_again(learn):
    page = learn(1)
    answer(page, 2, "5")
    assert result(page, 2) == "Right: 5."
    page.locator(".chips button").nth(1).click()
    assert result(page, 2) == "Right: 5."
    assert column(page, "scores", 3) == ["2", "5", "-2", "4"]
    page.locator(".chips button").nth(2).click()
    assert column(page, "scores", 3) == ["?", "-2", "4", "?"]
    reload(page, lambda page: result(page, 2) == "Right: 5.")
    assert matrix(page, "scores")[1][1] == "5"
    page.locator("#question-2").get_by_role("button", name="Ask again").click()
    assert matrix(page, "scores")[1][1] == "?"
    assert page.locator("#question-2 input").evaluate("(node) => node === document.activeElement")


def test_show_and_hint_with_the_keyboard(learn):
    page = learn(2, "phone")
    hint = page.locator("#question-1 .hint")
    assert not hint.is_visible()
    page.locator("#question-1 input").focus()
    for _ in range(2):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert hint.inner_text().startswith("Hint: The exponential")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert result(page, 1) == "The answer is 0.2447."
    assert not hint.is_visible()
    assert page.evaluate("() => document.activeElement.textContent") == "Ask again"


@pytest.mark.parametrize("typed", ["0.2447", ".24", "0,245", "2447/10000", " +2.4e-1 "])
def test_answers_are_read_as_people_write_them(learn, typed):
    page = learn(2)
    answer(page, 1, typed)
    assert result(page, 1) == "Right: 0.2447."


def test_edited_numbers_are_not_asked_for(learn):
    page = learn(1)
    page.get_by_role("switch", name="Edit").click()
    assert page.locator("#question-1").is_visible()
    page.locator("figure.map[data-step=embeddings] tbody td").first.click()
    page.locator(".number-input").fill("3")
    page.keyboard.press("Enter")
    assert not page.locator("#question-1").is_visible()
    assert matrix(page, "scores")[0] == ["9", "3", "-6", "0"]
    page.locator("#edit").get_by_role("button", name="Reset").click()
    assert page.locator("#question-1").is_visible()
    assert matrix(page, "scores")[0] == ["4", "2", "?", "0"]


@pytest.mark.parametrize("number", range(1, len(LESSONS) + 1))
def test_no_number_of_a_question_is_on_its_lesson(learn, number):
    page = learn(number)
    count = page.locator(".question").count()
    assert count >= 2
    assert page.locator(".asked").count() >= count
    for i in range(1, count + 1):
        page.locator(f"#question-{i}").get_by_role("button", name="Show").click()
    assert page.locator(".asked").count() == 0


# ---- Arrows


def arrows(page):
    """Returns what the arrows show, and the lines below them."""
    figure = page.locator(".arrows:visible").first
    return figure.locator("svg").get_attribute("aria-label"), figure.locator(".made p").all_inner_texts()


def test_arrows_tell_how_a_score_is_made(learn):
    page = learn(1)
    label, lines = arrows(page)
    assert label == "Arrows from 0. Query: hot (2, 0). Keys: hot (2, 0); soup (1, 2); cold (-2, 0); bread (0, 2)."
    assert lines[0] == "hot with soup: the score is 2."
    assert "the length of the query, 2, times" in lines[1]
    assert lines[1].endswith("the query's line, 1.")
    assert "63\u00b0" in lines[2]
    page.locator(".arrows button", has_text="bread").click()
    _, lines = arrows(page)
    assert lines[0] == "hot with bread: the score is 0."
    assert "90\u00b0" in lines[2]
    # The length of the shadow would answer the question.
    page.locator(".arrows button", has_text="cold").hover()
    assert arrows(page)[1] == ["hot with cold: the score is ?."]
    page.locator(".chips button", has_text="soup").click()
    assert arrows(page)[0].startswith("Arrows from 0. Query: soup (1, 2).")
    page.get_by_role("switch", name="Edit").click()
    page.locator("figure.map[data-step=embeddings] tbody td").nth(2).click()
    page.locator(".number-input").fill("0")
    page.keyboard.press("Enter")
    page.locator(".arrows button", has_text="cold").hover()
    label, lines = arrows(page)
    assert label.startswith("Arrows from 0. Query: soup (0, 2).")
    assert lines[0] == "soup with cold: the score is 0."


def test_arrows_keep_a_question_about_a_query(learn):
    page = learn(4)
    assert "Query: sleep (2, 0)." in arrows(page)[0]
    page.locator(".chips button", has_text="kittens").click()
    label, lines = arrows(page)
    assert "Query: kittens (?, 1)." in label
    assert len(lines) == 1


@pytest.mark.parametrize("name", ["001_your_journey", "text_long", "additive_score"])
def test_other_numbers_have_no_arrows(opener, name):
    assert opener(name).locator(".arrows").count() == 0


# ---- Glossary


def test_words_are_explained_by_mouse_keyboard_and_finger(learn):
    page = learn(4)
    term, bubble = page.locator(".banner .term", has_text="query").first, page.locator("#made")
    term.hover()
    assert bubble.inner_text().startswith("query\n\nWhat a word asks for")
    page.keyboard.press("Escape")
    assert not bubble.is_visible()
    term.focus()
    assert bubble.is_visible()
    page.keyboard.press("Tab")
    assert bubble.inner_text().startswith("key\n")
    page = learn(4, "phone")
    page.locator(".banner .term", has_text="value").tap()
    assert page.locator("#made").inner_text().startswith("value\n\nWhat a word passes on")
    page.locator("h1").tap()
    assert not page.locator("#made").is_visible()


def test_a_word_is_explained_once_in_each_part(learn):
    page = learn(4)
    words = page.locator("main .step .term").evaluate_all(
        "(terms) => terms.map((term) => [term.closest('section').id, term.textContent])"
    )
    for place in (["step-embeddings", "Embeddings"], ["story-word", "embedding"], ["story-scores", "dot product"]):
        assert place in words
    assert [section for section, word in words if word in ("Key weights", "Query weights")] == ["step-query_weights"]
    assert page.locator("bdi .term, h1 .term, button .term").count() == 0


def test_words_of_other_languages_are_explained(opener):
    page = opener.blank()
    text = pages.explain(pages.SCENES / "two_heads.json", "--format", "html", "--language", "zh")
    page.set_content(text)
    term = page.locator("#step-query .title .term")
    term.hover()
    assert page.locator("#made").inner_text().startswith(term.inner_text() + "\n")
    # Words in the middle of a sentence, which has no spaces.
    assert page.locator(".reading .term", has_text="注意力").count() > 0


# ---- Links


def test_lessons_link_to_one_another(opener):
    page = opener.blank()
    page.goto((folder() / "index.html").as_uri())
    assert page.get_by_role("main").get_by_role("link").count() == len(LESSONS)
    page.get_by_role("main").get_by_role("link").first.click()
    for _ in LESSONS[1:]:
        page.locator("a[rel=next]").click()
    page.wait_for_url(f"**/{LESSONS[-1]}.html")
    assert page.locator("a[rel=next]").count() == 0
    page.locator("a[rel=prev]").click()
    page.wait_for_url(f"**/{LESSONS[-2]}.html")
    page.get_by_role("link", name="All lessons").first.click()
    page.wait_for_url("**/index.html")


@pytest.mark.parametrize("scheme", pages.SCHEMES)
def test_axe_finds_nothing_on_the_index_and_a_lesson(learn, opener, scheme):
    page = opener.blank(scheme=scheme)
    page.goto((folder() / "index.html").as_uri())
    assert not violations(page, {"include": ["html"]})
    page = learn(4, scheme=scheme)
    answer(page, 2, "77")
    assert not violations(page, {"include": ["html"], "exclude": ["tbody td:not(.asked)"]})


@pytest.mark.parametrize("number", range(1, len(LESSONS) + 1))
def test_no_lesson_is_wider_than_a_phone(learn, number):
    page = learn(number, "phone")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= pages.PHONE["width"]
