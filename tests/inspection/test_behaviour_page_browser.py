"""The page in a real browser: it draws, answers pointer and keyboard, and asks nobody a thing."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from browsers import Watch, launch, show, tip
from page_files import HOSTILE, data_of, page_of, text_subject
from playwright.sync_api import Browser, Locator
from playwright.sync_api import Page as Window

from nanogpt_cli.inspection.behaviour import (
    VIEWS,
    ablation,
    activations,
    attention,
    contributions,
    lens,
    next_token,
    surprisal,
)
from nanogpt_cli.inspection.behaviour.subject import Subject

TEXT = "To be, or not to be, that is the question:\nWhether 'tis nobler"
NAMES = [view.name for view in VIEWS]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launch() as launched:
        yield launched


@pytest.fixture(scope="module")
def subject() -> Subject:
    return text_subject(TEXT, n_layer=3, n_head=4)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, subject: Subject) -> Path:
    """Return a folder with a page of a plain text and one of a hostile text."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "plain.html").write_bytes(page_of(subject, track=" the").data)
    (folder / "hostile.html").write_bytes(page_of(text_subject(HOSTILE)).data)
    return folder


@pytest.fixture
def window(browser: Browser) -> Iterator[Window]:
    """Return a window that must stay quiet."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light")
    opened = context.new_page()
    watch = Watch(opened)
    yield opened
    context.close()
    assert watch.said == []
    assert watch.asked == [url for url in watch.asked[:1] if url.startswith("file://")]


def percent(share: float) -> str:
    return f"{100 * share:#.3g} %"


def number_in(text: str) -> float:
    """Return the number that a text of the page is."""
    scale = 0.01 if text.endswith(" %") else 1.0
    return float(text.removesuffix(" %").replace(",", "")) * scale


def table_of(panel: Locator, number: int) -> list[list[str]]:
    """Return the cells of one of a panel's tables, row by row."""
    rows = panel.locator("table.rows").nth(number).locator("tbody tr")
    read = "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    cells: list[list[str]] = rows.evaluate_all(read)
    return cells


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_every_view_draws(window: Window, files: Path, width: int, scheme: str) -> None:
    window.set_viewport_size({"width": width, "height": 800})
    window.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    window.goto((files / "plain.html").as_uri())
    assert window.locator("[role=tab]").all_text_contents() == NAMES
    for name in NAMES:
        window.click(f"#tab-{name}")
        panel = window.locator(f"#panel-{name}")
        assert panel.is_visible()
        assert panel.locator("table, .strip, canvas").count() > 0
        assert window.locator("[role=tabpanel]:visible").count() == 1
        assert window.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_facts_stand_at_its_head(window: Window, files: Path) -> None:
    show(window, files, "next")
    facts = window.locator("#facts li").all_text_contents()
    assert facts[0] == " \N{MULTIPLICATION SIGN} ".join(["3 layers", "4 heads", "24 wide"])
    assert "tokenizer tiktoken" in facts
    assert window.locator("#left-out").is_hidden()
    assert window.locator("#prompt").text_content() == TEXT
    assert window.title().endswith(": nanogpt inspect")


def test_a_token_says_its_numbers_to_the_pointer(
    window: Window, files: Path, subject: Subject
) -> None:
    panel = show(window, files, "surprisal")
    panel.locator(".strip span").nth(3).hover()
    report = surprisal.measure(subject)
    assert report.tokens is not None
    token = report.tokens[3]
    lines = tip(window)
    assert token.bits is not None
    assert lines[0] == f"token 3: {token.label}"
    assert lines[1] == f"{token.bits:.2f} bits (probability {percent(2**-token.bits)})"
    assert lines[2].startswith(f"rank {token.rank};")
    window.mouse.move(5, 5)
    assert window.locator("#tip").is_hidden()


def test_the_lens_says_its_numbers(window: Window, files: Path, subject: Subject) -> None:
    panel = show(window, files, "lens")
    rows = lens.measure(subject, track=" the").rows
    panel.locator("tbody tr").nth(2).locator("td").nth(5).hover()
    lines = tip(window)
    assert lines[0] == rows[2].top_labels[5]
    assert lines[1].startswith(f"{percent(rows[2].top_probabilities[5])} after block 1, behind")
    assert lines[2].endswith(f" bits; the text goes on with {subject.labels[6]}")
    assert rows[2].tracked_ranks is not None
    assert lines[3].startswith(f"␣the: rank {rows[2].tracked_ranks[5]:,}, ")


def test_a_map_says_its_weights(window: Window, files: Path, subject: Subject) -> None:
    window.set_viewport_size({"width": 1200, "height": 1600})
    panel = show(window, files, "attention")
    maps, last = attention.measure(subject).maps.collect(), len(subject.ids) - 1
    panel.locator(".overview button").nth(4 * 1 + 2).click()
    assert panel.locator("h3").first.text_content() == "layer 1, head 2"
    box = panel.locator("canvas.map").bounding_box()
    assert box is not None
    window.mouse.move(box["x"] + box["width"] - 4, box["y"] + box["height"] - 4)
    lines = tip(window)
    told = f"token {last} looks at token {last}: {percent(float(maps[1, 2, last, last]))}"
    assert lines[1] == told


def test_a_map_is_read_by_keyboard(window: Window, files: Path, subject: Subject) -> None:
    panel = show(window, files, "attention")
    maps, last = attention.measure(subject).maps.collect(), len(subject.ids) - 1
    canvas = panel.locator("canvas.map")
    canvas.focus()
    for key in ("Home", "ArrowUp", "ArrowRight", "ArrowRight"):
        canvas.press(key)
    told = f"token {last - 1} looks at token 2: {percent(float(maps[0, 0, last - 1, 2]))}"
    assert tip(window)[1] == told
    assert told in str(window.locator("#live").text_content())
    canvas.press("Enter")
    assert panel.locator(".strip [aria-selected=true]").get_attribute("aria-label") is not None
    chosen = panel.locator(".strip span").nth(last - 1)
    assert chosen.get_attribute("aria-selected") == "true"


def test_a_head_is_chosen_in_three_ways(window: Window, files: Path, subject: Subject) -> None:
    panel = show(window, files, "attention")
    title = panel.locator("h3").first
    layer, head = panel.locator("select").nth(0), panel.locator("select").nth(1)
    before = panel.locator("canvas.map").screenshot()
    panel.locator(".overview button").first.focus()
    window.keyboard.press("ArrowDown")
    window.keyboard.press("ArrowRight")
    assert title.text_content() == "layer 1, head 1"
    assert (layer.input_value(), head.input_value()) == ("1", "1")
    assert panel.locator("canvas.map").screenshot() != before
    layer.select_option("2")
    assert title.text_content() == "layer 2, head 1"
    entropy = attention.measure(subject).heads[2 * 4 + 1].entropy_bits
    assert panel.locator(".facts dd").last.text_content() == f"{entropy:.2f} bits"
    chosen = panel.locator(".overview [aria-selected=true]")
    assert str(chosen.get_attribute("aria-label")).startswith("layer 2, head 1, ")
    head.select_option("mean")
    assert title.text_content() == "layer 2, the mean over its heads"
    assert panel.locator(".overview [aria-selected=true]").count() == 0
    panel.locator("canvas.map").focus()
    mean = attention.measure(subject, layer=2, average=True).map
    assert mean is not None
    assert number_in(tip(window)[1].split(": ")[1]) == pytest.approx(mean.weights[-1][-1], rel=5e-3)


def test_a_token_is_chosen_for_every_view(window: Window, files: Path, subject: Subject) -> None:
    strip = show(window, files, "surprisal").locator(".strip span")
    strip.nth(4).click()
    window.click("#tab-attention")
    panel = window.locator("#panel-attention")
    assert panel.locator(".strip span").nth(4).get_attribute("aria-selected") == "true"
    label = str(panel.locator(".strip span").nth(1).get_attribute("aria-label"))
    found = re.fullmatch(r"token 1: \S+, token 4 \S+ looks at it: ([\d.e-]+ %)", label)
    assert found
    exact = attention.measure(subject).maps.collect()[0, 0, 4, 1]
    assert number_in(found[1]) == pytest.approx(float(exact), rel=1e-2)
    panel.locator("select").nth(2).select_option("seen")
    label = str(panel.locator(".strip span").nth(1).get_attribute("aria-label"))
    assert re.fullmatch(r"token 1: \S+, it looks at token 4 \S+: 0\.0 %", label)


def test_the_likeliest_tokens_are_the_reports(
    window: Window, files: Path, subject: Subject
) -> None:
    rows = table_of(show(window, files, "next"), 0)
    for row, token in zip(rows, next_token.measure(subject).tokens, strict=False):
        assert row[:3] == [str(token.rank), token.label, str(token.id)]
        wanted = [token.logit, token.probability, token.cumulative]
        assert [number_in(row[n]) for n in (3, 4, 6)] == pytest.approx(wanted, rel=5e-3, abs=1e-3)


def test_the_most_surprising_token_comes_first(
    window: Window, files: Path, subject: Subject
) -> None:
    panel = show(window, files, "surprisal")
    report = surprisal.measure(subject)
    bits = report.arrays()["bits"]
    places = sorted(range(1, len(bits)), key=lambda place: -bits[place])
    rows = table_of(panel, 0)
    assert [number_in(row[3]) for row in rows] == pytest.approx(bits[places], abs=6e-3)
    assert {int(row[0]) for row in rows} == set(places)
    tiles = panel.locator(".tiles dd").all_text_contents()
    assert tiles[2].startswith(f"{report.loss:.4f}nats a token")
    assert tiles[4].startswith(f"{report.bits_per_token:.4f}")


def test_shares_and_their_sums_are_the_reports(
    window: Window, files: Path, subject: Subject
) -> None:
    panel = show(window, files, "contributions")
    report = contributions.measure(subject)
    (share,) = (p.relative for p in report.parts if (p.layer, p.head) == (1, 2))
    cell = panel.locator("table.grid tbody tr").nth(1).locator("td").nth(2)
    assert number_in(cell.inner_text()) == pytest.approx(share, abs=6e-4)
    strongest = sorted(report.parts, key=lambda part: -abs(part.relative))[:16]
    rows = table_of(panel, 0)
    assert [row[0] for row in rows[:16]] == [part.part for part in strongest]
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for part in report.parts:
        pair = sums[part.kind.split()[-1]]
        pair[:] = pair[0] + part.logit, pair[1] + part.relative
    wanted = {
        "embeddings": sums["embedding"],
        "heads": sums["head"],
        "biases": sums["bias"],
        "MLPs": sums["mlp"],
    }
    for name, *shown in table_of(panel, 1)[:4]:
        assert [number_in(text) for text in shown] == pytest.approx(wanted[name], abs=1e-3)


def test_the_largest_changes_of_the_loss_are_the_reports(
    window: Window, files: Path, subject: Subject
) -> None:
    report = ablation.measure(subject)
    changes = {
        **{f"block {r.layer} head {n}": x for r in report.layers for n, x in enumerate(r.heads)},
        **{f"block {row.layer} attention": row.attention for row in report.layers},
        **{f"block {row.layer} mlp": row.mlp for row in report.layers},
    }
    rows = table_of(show(window, files, "ablation"), 0)
    shown = [number_in(row[1]) for row in rows]
    assert [abs(change) for change in shown] == sorted(map(abs, shown), reverse=True)
    for name, change, _, loss in rows:
        exact = changes[name]
        assert exact is not None
        assert number_in(change) == pytest.approx(exact, abs=1e-4)
        assert number_in(loss) == pytest.approx(report.loss_nats + exact, abs=1e-4)


def test_idle_units_are_the_reports(window: Window, tmp_path: Path) -> None:
    bent = text_subject(TEXT)
    with torch.no_grad():
        for block in bent.model.blocks:
            block.mlp.c_fc.weight.mul_(8)
    (tmp_path / "plain.html").write_bytes(page_of(bent).data)
    rows = table_of(show(window, tmp_path, "activations"), 0)
    for cells, row in zip(rows[1:], activations.measure(bent).rows[1:], strict=True):
        assert row.units is not None
        assert row.units.low_share > row.units.dead_share
        shares = [row.units.dead_share, row.units.saturated_share]
        assert [number_in(text) for text in cells[9:11]] == pytest.approx(shares, rel=5e-3)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_ink_can_be_read_on_every_ground(window: Window, files: Path, scheme: str) -> None:
    window.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    cells = show(window, files, "lens").locator("[role=gridcell]")
    read = "cells => cells.map(cell => [cell.style.backgroundColor, cell.style.color])"
    pairs: list[list[str]] = cells.evaluate_all(read)
    assert len(pairs) > 30
    for pair in pairs:
        lights = sorted(luminance(colour) for colour in pair)
        assert (lights[1] + 0.05) / (lights[0] + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """Return WCAG's relative luminance of a colour `rgb(r, g, b)`."""
    shares = [int(each) / 255 for each in re.findall(r"\d+", colour)]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_all_of_it_is_reached_by_keyboard(window: Window, files: Path) -> None:
    show(window, files, "next")
    window.locator("#tab-next").focus()
    window.keyboard.press("ArrowRight")
    assert window.locator("#panel-surprisal").is_visible()
    window.keyboard.press("Tab")
    assert window.evaluate("document.activeElement.tagName") == "SELECT"
    window.keyboard.press("Tab")
    window.keyboard.press("ArrowRight")
    window.keyboard.press("ArrowRight")
    assert tip(window)[0].startswith("token 2: ")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert window.evaluate(outline) == "solid"
    window.keyboard.press("End")
    assert tip(window)[0].startswith("token ")
    window.keyboard.press("Escape")
    assert window.locator("#tip").is_hidden()
    window.keyboard.press("Tab")
    assert window.evaluate("document.activeElement.tagName") == "SUMMARY"


def test_the_grid_moves_by_arrow_keys(window: Window, files: Path) -> None:
    panel = show(window, files, "ablation")
    panel.locator("[role=gridcell]").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        window.keyboard.press(key)
    assert tip(window)[0] == "block 1 head 2"
    window.keyboard.press("End")
    assert tip(window)[0] == "block 1 both"


def test_light_and_dark(window: Window, files: Path) -> None:
    panel = show(window, files, "attention")
    ground = "getComputedStyle(document.body).backgroundColor"
    cell = panel.locator(".strip span").first
    light = window.evaluate(ground)
    before = panel.locator("canvas.map").screenshot(), cell.get_attribute("style")
    window.click("#theme")
    assert window.evaluate(ground) != light
    assert window.locator("#theme").text_content() == "light"
    assert panel.locator("canvas.map").screenshot() != before[0]
    assert cell.get_attribute("style") != before[1]
    window.emulate_media(color_scheme="dark")
    window.click("#theme")
    assert window.evaluate(ground) == light


def test_hostile_text_shows_as_itself(window: Window, files: Path) -> None:
    data = data_of(page_of(text_subject(HOSTILE)))
    show(window, files, NAMES[0], "hostile")
    for name in NAMES:
        window.click(f"#tab-{name}")
    assert window.locator("#prompt").text_content() == data["prompt"]
    assert window.locator("h1").text_content() == "<b>[red]a&b[/red]</b>.pt"
    assert window.locator("script").count() == 2
    assert window.locator("img, b script, h1 b").count() == 0
    window.click("#tab-surprisal")
    text = window.locator("#panel-surprisal .strip").text_content()
    assert text == data["prompt"]


def test_nothing_foreign_runs(browser: Browser, files: Path) -> None:
    context = browser.new_context()
    window = context.new_page()
    watch = Watch(window)
    window.goto((files / "plain.html").as_uri())
    window.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.ran = true";
            document.body.append(script);
        }"""
    )
    assert window.evaluate("window.ran") is None
    failed = "fetch('http://127.0.0.1:9/').then(() => false, () => true)"
    assert window.evaluate(failed)
    assert len(watch.said) >= 2
    assert all("Content Security Policy" in line for line in watch.said)
    context.close()


def test_a_page_of_gpt2s_shape_shows_every_head(window: Window, tmp_path: Path) -> None:
    many = text_subject(TEXT * 3, n_layer=12, n_head=12, n_embd=12)
    many = replace(many, ids=many.ids[:64])
    (tmp_path / "plain.html").write_bytes(page_of(many).data)
    panel = show(window, tmp_path, "attention")
    assert panel.locator(".overview button canvas").count() == 144
    window.set_viewport_size({"width": 390, "height": 800})
    window.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    box = panel.locator("canvas.map").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390
    assert box["width"] > 300


def test_what_is_left_out_is_told(window: Window, tmp_path: Path) -> None:
    long = text_subject("to be or not " * 80, block_size=300)
    (tmp_path / "plain.html").write_bytes(page_of(long).data)
    panel = show(window, tmp_path, "attention")
    assert window.locator("#left-out").is_visible()
    told = window.locator("#left-out").inner_text()
    assert f"the model sees the last 300 of the text's {len(long.ids)} tokens" in told
    assert "the page shows the last 256 of the 300 tokens that the model sees" in told
    canvas = panel.locator("canvas.map")
    canvas.focus()
    exact = attention.measure(long.last_block()).maps.collect()[0, 0, -1, :-256].sum()
    lines = tip(window)
    assert lines[1].startswith(f"token {len(long.ids) - 1} looks at token {len(long.ids) - 1}: ")
    share = float(
        lines[2].removesuffix(" % of its attention is on tokens that are not on this page")
    )
    assert share / 100 == pytest.approx(float(exact), abs=1e-3)


def test_one_token_says_what_is_missing(window: Window, tmp_path: Path) -> None:
    (tmp_path / "plain.html").write_bytes(page_of(text_subject("A")).data)
    panel = show(window, tmp_path, "ablation")
    assert "Not here: the text is one token" in str(panel.text_content())


def test_printing_draws_every_view(window: Window, files: Path) -> None:
    show(window, files, "next")
    window.emulate_media(media="print")
    window.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert window.locator("[role=tabpanel]:visible").count() == len(NAMES)
    assert window.locator("#panel-ablation table").count() == 2
