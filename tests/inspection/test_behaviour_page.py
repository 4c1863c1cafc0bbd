"""The page, read without a browser: what it holds, what it must not, and how large it gets."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
import torch
from behaviour_subjects import subject
from model_files import build
from page_files import HOSTILE, NAME, data_of, maps_of, page_of, text_subject

from nanogpt_cli.errors import UsageError
from nanogpt_cli.inspection.behaviour import VIEWS, attention, lens, surprisal
from nanogpt_cli.inspection.behaviour.page import Page
from nanogpt_cli.inspection.behaviour.page.assembly import SCRIPTS, spell_data
from nanogpt_cli.inspection.behaviour.page.attention_bytes import MOST_BYTES, MapPlan, plan_maps
from nanogpt_cli.inspection.behaviour.page.contents import MOST_TOKENS
from nanogpt_cli.inspection.behaviour.page.packing import PACKERS, spell_pieces

FOLDER = files("nanogpt_cli.inspection.behaviour.page")


@pytest.fixture(scope="module")
def hostile() -> Page:
    return page_of(text_subject(HOSTILE))


class Tags(HTMLParser):
    """The tags of a page, and what its scripts and styles hold."""

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(page.data.decode("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1] in self.raw and self.cdata_elem == self.tags[-1]:
            self.raw[self.tags[-1]].append(data)


def test_every_view_has_what_draws_it_and_every_script_is_in_the_page() -> None:
    names = [view.name for view in VIEWS]
    assert list(PACKERS) == names
    scripts = "".join(FOLDER.joinpath(name).read_text() for name in SCRIPTS)
    assert sorted(re.findall(r"^drawers\.(\w+) = ", scripts, re.MULTILINE)) == sorted(names)
    there = {item.name for item in FOLDER.iterdir() if item.name.endswith(".js")}
    assert there == set(SCRIPTS)


def test_text_is_never_markup(hostile: Page) -> None:
    tags = Tags(hostile)
    assert tags.tags.count("script") == 2
    assert tags.tags.count("style") == 1
    assert not {"b", "img"} & set(tags.tags)
    plain = Tags(page_of(text_subject("plain text")))
    assert tags.tags == plain.tags
    assert b"alert(1)</" not in hostile.data
    assert hostile.data.count(b"</script>") == 2
    (data, *_), text = tags.raw["script"], hostile.data.decode("utf-8")
    assert data.isascii()
    assert not set("<>&") & set(data)
    assert "{{" not in text.replace(data, "")


def test_nothing_is_fetched_and_nothing_foreign_runs(hostile: Page) -> None:
    tags = Tags(hostile)
    text = hostile.data.decode("utf-8").replace(tags.raw["script"][0], "")
    assert not re.search(r"https?:|[^/]//[a-z]|@import|url\(|import\(|fetch\(|XMLHttp", text)
    assert [value for name, value in tags.attributes if name in ("src", "href")] == ["data:,"]
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name == "style"]
    (policy,) = (value for name, value in tags.attributes if value and "default-src" in value)
    _, script = tags.raw["script"]
    (style,) = tags.raw["style"]
    hashes = {
        kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for kind, text in (("script", script), ("style", style))
    }
    assert policy == (
        f"default-src 'none'; img-src data:; style-src 'sha256-{hashes['style']}'; "
        f"script-src 'sha256-{hashes['script']}'; base-uri 'none'; form-action 'none'"
    )


def test_no_script_can_make_markup_of_text() -> None:
    for name in SCRIPTS:
        text = FOLDER.joinpath(name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b", text)
        assert not re.search(r"new Function|DOMParser|createContextualFragment|cssText", text)


def test_the_facts_are_those_of_the_model(hostile: Page) -> None:
    data = data_of(hostile)
    assert data["checkpoint"] == NAME
    assert data["tokenizer"] == "tiktoken"
    assert data["config"] == {
        **{"n_layer": 2, "n_head": 3, "n_embd": 24, "block_size": 192, "vocab_size": 1024},
        **{"bias": True, "activation": "gelu"},
    }
    assert data["prompt_characters"] == len(HOSTILE)
    assert data["prompt"].startswith("<script>alert(1)</script> [red]once[/red] & </script><!--")
    assert "\\x00\\x1b[31m\\u200f\\u202eabc\\u2028\\u2029 na\u00efve" in data["prompt"]
    assert hostile.views == tuple(view.name for view in VIEWS)
    assert hostile.left_out == ()
    assert "".join(data["tokens"]["pieces"]) == data["prompt"]


def test_a_lone_surrogate_is_spelled_out() -> None:
    odd = replace(text_subject("a b"), text="\ud800 \udc80", name="\udcff.pt")
    data = data_of(page_of(odd))
    assert data["prompt"] == "\\ud800 \\x80"
    assert data["checkpoint"] == "\\xff.pt"


def test_numbers_are_those_of_the_views(hostile: Page) -> None:
    one = text_subject(HOSTILE)
    data = data_of(hostile)
    views = data["views"]
    scored = surprisal.measure(one)
    assert scored.tokens is not None
    assert views["surprisal"]["protocol"] == "one window"
    assert views["surprisal"]["bits"][0] is None
    bits = [token.bits for token in scored.tokens[1:]]
    assert views["surprisal"]["bits"][1:] == pytest.approx(bits, rel=1e-5)
    assert views["surprisal"]["ranks"] == [token.rank for token in scored.tokens]
    rows = lens.measure(one).rows
    assert [row["ids"] for row in views["lens"]["rows"]] == [list(row.top_ids) for row in rows]
    labels = [data["labels"][str(token)] for token in views["lens"]["rows"][-1]["ids"]]
    assert labels == list(rows[-1].top_labels)
    exact = attention.measure(one).maps.collect()
    np.testing.assert_allclose(maps_of(data), exact, atol=1 / 65535)
    assert views["attention"]["steps"] == 65535


def test_the_same_input_gives_the_same_bytes(hostile: Page) -> None:
    assert page_of(text_subject(HOSTILE)).data == hostile.data
    assert page_of(text_subject(HOSTILE), "lens").data != hostile.data


def test_options_go_to_the_views_that_take_them() -> None:
    one = text_subject("Once upon a time")
    page = page_of(one, "attention", track=" the", layer=1, head=2, answer=" a", position=1, top=3)
    data = data_of(page)
    views = data["views"]
    assert data["start"] == "attention"
    assert (views["attention"]["layer"], views["attention"]["head"]) == (1, 2)
    (the,) = one.tokenizer.encode(" the")
    assert views["next"]["tracked"] == views["lens"]["tracked"] == the
    assert [row["rank"] for row in views["next"]["rows"][:3]] == [1, 2, 3]
    assert len(views["next"]["rows"]) == 4
    assert views["contributions"]["position"] == 1
    assert data["labels"][str(views["contributions"]["answer"]["id"])] == "␣a"
    averaged = data_of(page_of(one, layer=0, average=True))
    assert averaged["views"]["attention"]["head"] is None


@pytest.mark.parametrize(
    ("option", "value"), [("layer", 9), ("track", "two words"), ("position", 99), ("stride", 0)]
)
def test_an_option_that_cannot_be_meant_is_no_page(option: str, value: object) -> None:
    with pytest.raises(UsageError):
        page_of(text_subject("Once upon a time"), "next", **{option: value})


def test_one_token_has_no_losses() -> None:
    page = page_of(subject(ids=[7]))
    views = data_of(page)["views"]
    told = {"missing": "the text is one token, and a token is predicted from those before it"}
    assert [name for name in views if views[name] == told] == ["surprisal", "ablation"]


def test_a_text_beyond_the_context_says_so() -> None:
    ids = [place % 60 for place in range(40)]
    model = build()
    with torch.no_grad():
        model.transformer.wpe.weight[:, 5] += 100.0
    page = page_of(subject(model, ids))
    data = data_of(page)
    told = "the model sees the last 16 of the text's 40 tokens; surprisal alone goes over all"
    assert [line[: len(told)] for line in page.left_out] == [told]
    assert data["left_out"] == list(page.left_out)
    assert data["tokens"]["first"] == 24
    assert data["tokens"]["ids"] == ids[24:]
    assert data["views"]["surprisal"]["protocol"] == "sliding, stride 8"
    assert data["views"]["surprisal"]["ids"] == ids
    assert data["views"]["contributions"]["position"] == 39
    assert data["views"]["activations"]["rows"][0]["residual"]["at"] >= 24
    (outlier,) = data["views"]["activations"]["rows"][0]["outliers"]
    assert (outlier["dimension"], outlier["extreme_position"] >= 24) == (5, True)
    assert data["views"]["ablation"]["predicted_tokens"] == 15
    assert len(data["prompt"]) == 0


def test_a_long_text_is_cut_and_says_so() -> None:
    count, block_size = 5000, 300
    model = build(block_size=block_size, n_layer=1, n_head=1, n_embd=4)
    ids = [place % 61 for place in range(count)]
    page = page_of(subject(model, ids))
    data = data_of(page)
    assert [line.split(";")[0] for line in page.left_out] == [
        "the model sees the last 300 of the text's 5,000 tokens",
        "the page shows the last 256 of the 300 tokens that the model sees",
        "surprisal shows the last 4,096 of 5,000 tokens",
    ]
    assert data["tokens"]["ids"] == ids[-MOST_TOKENS:]
    assert data["tokens"]["first"] == count - MOST_TOKENS
    assert data["views"]["surprisal"]["first"] == count - 4096
    assert data["views"]["surprisal"]["ids"] == ids[-4096:]
    assert data["views"]["surprisal"]["scored_tokens"] == count - 1
    view = data["views"]["attention"]
    assert (view["tokens"], view["before"]) == (MOST_TOKENS, block_size - MOST_TOKENS)
    exact = attention.measure(subject(model, ids[-block_size:])).maps.collect()
    last = slice(-MOST_TOKENS, None)
    np.testing.assert_allclose(maps_of(data), exact[:, :, last, last], atol=1 / 65535)
    assert {len(row["ids"]) for row in data["views"]["lens"]["rows"]} == {MOST_TOKENS}


@pytest.mark.parametrize(
    ("heads", "tokens", "plan"),
    [
        (144, 64, MapPlan(64, 2)),
        (144, 203, MapPlan(203, 2)),
        (144, 204, MapPlan(204, 1)),
        (144, 256, MapPlan(256, 1)),
        (1200, 256, MapPlan(99, 1)),
        (10**7, 256, MapPlan(1, 1)),
    ],
)
def test_maps_never_outgrow_the_page(heads: int, tokens: int, plan: MapPlan) -> None:
    assert plan_maps(heads, tokens) == plan
    size = heads * plan.tokens * (plan.tokens + 1) // 2 * plan.itemsize
    assert size <= MOST_BYTES or plan.tokens == 1


def test_maps_in_8_bits_keep_small_weights_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "nanogpt_cli.inspection.behaviour.page.attention_bytes.MOST_BYTES", 6 * 12 * 13 // 2
    )
    page = page_of(subject())
    data = data_of(page)
    assert data["views"]["attention"]["steps"] == 255
    exact = attention.measure(subject()).maps.collect()
    bound = np.sqrt(exact) / 255 + (0.5 / 255) ** 2
    assert (np.abs(maps_of(data) - exact) <= bound).all()


def test_a_page_of_gpt2s_shape_for_64_tokens_is_small() -> None:
    model = build(block_size=64, n_layer=12, n_head=12, n_embd=12)
    page = page_of(subject(model, [place % 60 for place in range(64)]))
    assert page.left_out == ()
    assert 800_000 < len(page.data) < 1_000_000
    assert len(page_of(subject(model, [1, 2])).data) < 150_000


def test_a_character_cut_in_two_goes_with_its_last_token() -> None:
    one = text_subject("é 你 \U0001f9ff")
    pieces = spell_pieces(one.tokenizer, one.ids)
    assert "".join(pieces) == "é 你 \U0001f9ff"
    assert "" in pieces
    cut = spell_pieces(one.tokenizer, one.ids[:-1])
    assert "".join(cut).startswith("é 你 \\xf0")


def test_data_holds_no_number_that_json_lacks() -> None:
    spelled = spell_data({"a": float("nan"), "b": [float("inf"), 1 / 3], "c": "<\u2028>&"})
    assert spelled == '{"a":null,"b":[null,0.333333],"c":"\\u003c\\u2028\\u003e\\u0026"}'
