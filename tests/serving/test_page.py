"""The page of the server in a real browser: every view in both languages, and what may go wrong."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from albertine import Predictor, save
from albertine.analysis.attention import attention_of
from albertine.analysis.layers import layer_statistics
from albertine.analysis.lens import lens
from albertine.core.released import DEFAULT_MODELS, released_folder
from albertine.model.model import Model
from albertine.serving.page import POLICY
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.inference.exports import PIECES, encoder, exported
from tests.serving.browser import browser, served, tab
from tests.serving.served import client_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Addresses = Callable[[str], str]
Fields = Mapping[str, str]
LANGUAGES = ("en-US", "zh-CN")
HOSTILE = "the <img>"
"""Markup, so short that a model of 16 tokens reads it."""
VIEWS: dict[str, dict[str, Fields]] = {
    "fill-mask": {
        "fill": {"inputs": "the [MASK] man said [MASK] house"},
        "similar": {"texts": "the old man\na house"},
        "rank": {"query": "who", "texts": "the old man\na house"},
        "lens": {"inputs": "the old man said"},
        "attention": {"inputs": "the old man said"},
        "states": {"texts": "the old man\na house was good"},
    },
    "single": {"classify": {"first": "the old man", "pair": "a house"}},
    "score": {
        "classify": {"first": "the old man", "pair": ""},
        "rank": {"query": "who", "texts": "the old man\na house"},
    },
    "choose": {"choose": {"passage": "the man", "question": "who ?", "options": "was\nnever in a house"}},
    "answer": {"answer": {"passage": "the old man said that", "question": "who ?"}},
    "tag": {"tag": {"inputs": "the old man"}},
    "relate": {"relate": {"inputs": "the old man said that a house"}},
    "order": {"order": {"first": "the old man", "second": "a house"}},
}
"""By model its views, with texts for their fields."""


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def wanted(model: Predictor, view: str, fields: Fields) -> list[Any]:
    """What a view shows, by the Python interface: names and values of bars, or cells of a table."""
    match view:
        case "fill":
            [masks] = [model.fill_mask(fields["inputs"])]
            return [(one.token, percent(one.probability)) for mask in masks for one in mask]
        case "lens":
            found = lens(model.model, model.tokenizer, fields["inputs"], top=1)
            return [
                best.token + " ✓" * (best.token == one.answer)
                for one in found.positions
                for (best,) in one.guesses
            ]
        case "attention":  # of the first token after [CLS], in the last layer, mean over heads
            found = attention_of(model.model, model.tokenizer, fields["inputs"])
            row = dict(zip(found.tokens, found.weights[-1].mean(0)[1], strict=True))
            return [(token, percent(row[token])) for token in sorted(row, key=lambda token: -row[token])[:5]]
        case "states":
            found = layer_statistics(model.model, model.tokenizer, fields["texts"].splitlines())
            return [f"{x:.2f}" for row in found.cka for x in row]
        case "similar":
            texts = fields["texts"].splitlines()
            return [f"{x:.2f}" for row in model.similarity(texts, texts) for x in row]
        case "rank":
            texts = fields["texts"].splitlines()
            if model.path.name == "score":
                scores = [one["score"] for one in model.classify([(fields["query"], text) for text in texts])]
            else:
                scores = model.similarity([fields["query"]], texts)[0].tolist()
            found = dict(zip(texts, scores, strict=True))
            return [(text, f"{found[text]:.3f}") for text in sorted(found, key=lambda text: -found[text])]
        case "classify":
            [found] = model.classify(
                [(fields["first"], fields["pair"]) if fields["pair"] else fields["first"]]
            )
            if "score" in found:
                return [("score", f"{found['score']:.3f}")]
            return sorted(((a, percent(b)) for a, b in found.items()), key=lambda row: -found[row[0]])
        case "choose":
            options = fields["options"].splitlines()
            found = dict(
                zip(
                    options,
                    model.choose(fields["passage"], options, question=fields["question"]),
                    strict=True,
                )
            )
            return sorted(((a, percent(b)) for a, b in found.items()), key=lambda row: -found[row[0]])
        case "answer":
            [likely] = model.likely_spans([(fields["question"], fields["passage"])])
            return [(fields["passage"][a:b], percent(score)) for (a, b), score in likely.spans.items()][:5]
        case "tag":
            text = fields["inputs"]
            return [cell for kind, a, b in model.tag(text) for cell in (text[a:b], kind)]
        case "relate":
            text = fields["inputs"]
            return [
                cell
                for one in model.relate(text)
                for cell in (text[slice(*one.subject)], one.predicate, text[slice(*one.object)])
            ]
        case "order":
            [score] = model.sentence_order([(fields["first"], fields["second"])])
            return [("in this order", percent(score)), ("the other way round", percent(1 - score))]
    raise AssertionError(view)


@pytest.fixture(scope="module")
def models(folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a head, of `order`, or of a released model."""
    place = tmp_path_factory.mktemp("page")

    @cache
    def of(name: str) -> Path:
        if name == "order":
            save(Model(encoder(2), {"mlm", "sop"}, seed=2).eval(), WordPieceTokenizer(PIECES), place / name)
            return place / name
        return released_folder(name) if name in DEFAULT_MODELS.values() else folder(name)

    return of


@pytest.fixture(scope="module")
def address(models: Callable[[str], Path]) -> Iterator[Addresses]:
    """The address of a server of such a model."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(served(models(name))))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


def until(page: Page, condition: str) -> None:
    """Wait until an expression is true. Playwright's own wait needs `eval`, which the policy forbids."""
    end = time.monotonic() + 15
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.005)


def compute(page: Page, address: str, view: str, fields: Fields) -> None:
    """Open a view, write into its fields, and wait for what it shows."""
    page.goto(f"{address}#{view}")
    until(page, f"document.querySelector('nav [aria-current]')?.hash === '#{view}'")
    for name, text in fields.items():
        page.fill(f"#field-{name}", text)
    page.click("button.main")
    until(page, "!document.querySelector('[aria-busy]') && document.querySelector('#result > details')")


def shown(page: Page, view: str) -> list[Any]:
    """The same as `wanted` on the page."""
    if view in ("similar", "tag", "relate", "lens", "states"):
        kind = "td" if view in ("similar", "lens", "states") else "tbody th, #result tbody td:not(.number)"
        return page.locator(f"#result {kind}").all_inner_texts()
    parts = (page.locator(f"#result .bars .{part}").all_inner_texts() for part in ("name", "value"))
    return list(zip(*parts, strict=True))


@pytest.mark.parametrize("name", VIEWS)
def test_views(chromium: Browser, address: Addresses, models: Callable[[str], Path], name: str) -> None:
    """Catches: other numbers than those of `Predictor`; in Chinese, another result or words in English."""
    model = Predictor(models(name), precision="float32")
    with tab(chromium, errors=True) as page:  # examples are too long for a model of 16 tokens
        for view, fields in VIEWS[name].items():
            compute(page, address(name), view, fields)
            expected = wanted(model, view, fields)
            assert shown(page, view) == expected
            page.select_option("#language", "zh")
            assert page.get_attribute("html", "lang") == "zh-CN"
            words = page.locator("h2, nav a, form label, button.main, #result summary").all_inner_texts()
            assert all(re.search("[\u4e00-\u9fff]", word) for word in words), words
            assert [row[1:] for row in shown(page, view)] == [row[1:] for row in expected]
            page.select_option("#language", "en")


def test_a_view_that_does_not_exist(chromium: Browser, address: Addresses) -> None:
    """Catches: names that every object of JavaScript has."""
    with tab(chromium) as page:
        for name in ("absent", "constructor"):
            page.goto("about:blank")
            page.goto(f"{address('fill-mask')}#{name}")
            until(page, "document.querySelector('nav [aria-current]')?.hash === '#fill'")


def test_browser_language(chromium: Browser, address: Addresses) -> None:
    """Catches: English for a Chinese browser; a choice that a reload forgets; examples in the language of the
    page, which the model does not read."""
    with tab(chromium, locale="zh-CN") as page:
        page.goto(address("fill-mask"))
        page.wait_for_selector("#result .bars")
        assert page.inner_text("h2") == "完形填空"
        assert page.input_value("#field-inputs") == "I do not [MASK] what you mean."
        page.select_option("#language", "en")
        page.reload()
        page.wait_for_selector("#result .bars")
        assert page.inner_text("h2") == "Masked words"


def test_tokens_are_masked_by_clicks(chromium: Browser, address: Addresses) -> None:
    """Catches: places in UTF-16 for those of code points; a token that does not come back."""
    text = "\U0001f600 the old man said"
    with tab(chromium) as page:
        compute(page, address("fill-mask"), "fill", {"inputs": text})
        assert not page.locator(".bars").count()
        for word, expected in (
            ("old", "\U0001f600 the [MASK] man said"),
            ("said", "\U0001f600 the [MASK] man [MASK]"),
        ):
            page.click(f".tokens button:text-is('{word}')")
            until(
                page,
                f"document.querySelectorAll('[aria-pressed=true]').length === {expected.count('[MASK]')}",
            )
            assert page.input_value("#field-inputs") == expected
        assert page.locator(".bars").count() == 2
        page.locator("[aria-pressed=true]").first.click()
        until(page, "document.querySelectorAll('[aria-pressed=true]').length === 1")
        assert page.input_value("#field-inputs") == "\U0001f600 the old man [MASK]"


def test_depth_slider(chromium: Browser, address: Addresses, models: Callable[[str], Path]) -> None:
    """Catches: guesses of another depth than the slider's; a request for each depth; a shared model that ends
    at its layers."""
    model, text = Predictor(models("fill-mask"), precision="float32"), "the [MASK] man said"
    [expected] = lens(model.model, model.tokenizer, text).positions
    with tab(chromium, errors=True) as page:
        compute(page, address("fill-mask"), "fill", {"inputs": text})
        requests: list[Any] = []
        page.on("request", lambda request: requests.append(request))
        assert page.inner_text("label[for=depth]") == "Depth: 1 of 1 layers"
        for depth, label in ((0, "the embeddings alone"), (2, "2, beyond the 1 layers of training")):
            page.fill("#depth", str(depth))
            assert shown(page, "fill") == [
                (one.token, percent(one.probability)) for one in expected.guesses[depth]
            ]
            assert label in page.inner_text("label[for=depth]")
            assert label in page.get_attribute("#depth", "aria-valuetext")
        assert not requests


@pytest.mark.matrix  # a time, which other tests beside it lengthen
def test_time_of_the_depth_slider(chromium: Browser, address: Addresses) -> None:
    """Catches: guesses that are computed when the slider moves. The best of five, as the machine may be
    busy."""
    with tab(chromium) as page:
        compute(page, address("albertine-mini-en"), "fill", {"inputs": "He was the [MASK] of the [MASK]."})
        times = []
        for depth in (0, 1, 2, 3, 4):
            script = f"""() => new Promise((resolve) => {{
                const slider = document.querySelector("#depth"), began = performance.now();
                slider.value = {depth};
                slider.dispatchEvent(new Event("input"));
                requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - began)));
            }})"""
            times.append(page.evaluate(script))
        assert min(times) < 100


def test_attention_of_a_head(chromium: Browser, address: Addresses, models: Callable[[str], Path]) -> None:
    """Catches: another head, layer or token than the chosen one."""
    model, text = Predictor(models("single"), precision="float32"), "the old man said"
    found = attention_of(model.model, model.tokenizer, text)
    with tab(chromium, errors=True) as page:
        compute(page, address("single"), "attention", {"inputs": text})
        page.fill("#layer", "1")
        page.select_option("#head", "2")
        page.click(".tokens button:text-is('man')")
        row = dict(zip(found.tokens, found.weights[0, 1, found.tokens.index("man")], strict=True))
        assert shown(page, "attention") == [
            (token, percent(row[token])) for token in sorted(row, key=lambda token: -row[token])[:5]
        ]
        assert page.evaluate("document.activeElement.textContent") == "man"
        cells = page.locator("#result table").first.locator("td").all_inner_texts()
        assert cells == [f"{x:.2f}" for layer in found.entropy for x in layer]


def test_snippets(chromium: Browser, address: Addresses) -> None:
    """Catches: a request that is not the one of the page; quotes that end a word of the shell; JSON that is
    not Python."""
    with tab(chromium, errors=True) as page:
        compute(page, address("fill-mask"), "fill", {"inputs": 'it\'s "the" [MASK] $HOME'})
        page.click("summary")
        curl, python = page.locator("details pre").all_inner_texts()[:2]
        with page.expect_response("**/") as answered:
            page.click("button.main")
        wanted = answered.value.json()
    found = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, check=True)
    assert ast.literal_eval(found.stdout) == wanted
    if shutil.which("curl"):
        found = subprocess.run(["sh", "-c", curl], capture_output=True, text=True, check=True)
        assert json.loads(found.stdout) == wanted


def test_hostile_text(
    chromium: Browser, address: Addresses, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Catches: markup in a text, in a name or in a card that becomes elements of the page."""
    with tab(chromium, errors=True) as page:
        for name, views in VIEWS.items():
            for view, fields in views.items():
                written = dict.fromkeys(fields, f"[MASK] {HOSTILE}" if view == "fill" else HOSTILE)
                two = {"options", "texts"} & written.keys()
                compute(page, address(name), view, written | dict.fromkeys(two, f"{HOSTILE}\n{HOSTILE}"))
                assert not page.locator("img, main script").count()
    hostile = shutil.copytree(models("fill-mask"), tmp_path / HOSTILE)
    (hostile / "README.md").write_text(
        f"# {HOSTILE}\n\n{HOSTILE}\n\n| a | b |\n| - | - |\n| {HOSTILE} | `{HOSTILE}` |\n"
    )
    with tab(chromium) as page, served(hostile) as own:
        page.goto(f"{own}#model")
        page.wait_for_selector("h4")
        assert page.inner_text("h4") == HOSTILE and page.inner_text("#name") == hostile.name
        assert not page.locator("img, main script").count()


def test_server_that_goes_away(chromium: Browser, models: Callable[[str], Path]) -> None:
    """Catches: a page that loses the text, or does not work again once the server does."""
    with tab(chromium, errors=True) as page:
        with served(models("fill-mask")) as own:
            compute(page, own, "fill", {"inputs": "the [MASK] man"})
        page.fill("#field-inputs", "the old [MASK]")
        page.click("button.main")
        until(page, "document.querySelector('#problem').textContent")
        assert "does not answer" in page.inner_text("#problem")
        page.click("nav a[href='#model']")
        page.click("nav a[href='#fill']")
        assert page.input_value("#field-inputs") == "the old [MASK]"
        with served(models("fill-mask"), port=int(own.rstrip("/").rpartition(":")[2])):
            page.click("button.main")
            until(
                page,
                "document.querySelector('#result .bars') && !document.querySelector('#problem').textContent",
            )


def test_long_and_missing_texts(chromium: Browser, address: Addresses) -> None:
    """Catches: 10,000 characters that hang the page; an error without the limit; an empty field that is
    sent."""
    with tab(chromium, errors=True) as page:
        page.goto(address("fill-mask"))
        page.wait_for_selector("#result .bars")
        page.fill("#field-inputs", "[MASK] " + "the old man " * 833)
        page.click("button.main")
        until(page, "document.querySelector('#problem').textContent.includes('40')")
        assert re.fullmatch(
            r"The text has \d+ tokens, and at most 40 are possible here\. Shorten it\.",
            page.inner_text("#problem"),
        )
        page.fill("#field-inputs", " ")
        page.click("button.main")
        assert page.inner_text("#problem") == "Write something under “Text”."
        assert page.evaluate("document.activeElement.id") == "field-inputs"
        page.fill("#field-inputs", "the [MASK]")
        page.click("button.main")
        page.wait_for_selector("#result .bars")


def test_token(chromium: Browser, models: Callable[[str], Path]) -> None:
    """Catches: a page behind the token that it is to ask for; a token that is not sent; a snippet with it."""
    with tab(chromium, errors=True) as page, served(models("fill-mask"), token="schlüssel".encode()) as own:
        page.goto(own)
        page.wait_for_selector("#token:focus")
        for text in ("wrong", "schlüssel"):
            page.fill("#token", text)
            page.click("#token-form button")
            page.wait_for_load_state("networkidle")
        page.wait_for_selector("#result .bars")
        assert page.locator("#token").is_hidden()
        page.click("summary")
        snippets = page.inner_text("details")
        assert "$ALBERTINE_TOKEN" in snippets and "schlüssel" not in snippets
        page.reload()
        page.wait_for_selector("#result .bars")


def proxy(app: Any) -> Any:
    """A proxy that forwards `/albert` and what is below it, without this path."""

    async def forwarded(scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        path = path.removeprefix("/albert") or "/" if path.startswith("/albert") else "/elsewhere"
        await app({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return forwarded


def test_below_a_path(chromium: Browser, models: Callable[[str], Path]) -> None:
    """Catches: absolute addresses; an address without its slash, or a proxy that keeps its path, without
    advice."""

    with served(models("fill-mask"), wrap=proxy) as own, tab(chromium) as page:
        page.goto(f"{own}albert/")
        page.wait_for_selector("#result .bars")
        page.click("summary")
        assert f"curl {own}albert/ " in page.inner_text("details")
    with served(models("fill-mask")) as own, tab(chromium, errors=True) as page:
        page.goto(f"{own}albert/")
        assert "removes this path" in page.inner_text("body")


def test_address_without_its_slash(chromium: Browser, models: Callable[[str], Path]) -> None:
    """Catches: an empty page where the address of a proxy has no slash at its end, so that the other files
    are searched beside it."""

    with served(models("fill-mask"), wrap=proxy) as own, chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{own}albert")
        assert "slash at the end" in page.inner_text("p.unstyled")


@pytest.mark.matrix  # an export takes seconds; `test_torch_free` requests the page in `make test`
def test_exported_model(chromium: Browser, tmp_path: Path) -> None:
    """Catches: a page that needs torch; views that need it without a word."""
    _, folder = exported("fill-mask", tmp_path)
    with tab(chromium) as page, served(folder) as own:
        page.goto(own)
        page.wait_for_selector("#result .bars")
        page.goto(f"{own}#order")
        page.wait_for_selector(".note")
        assert "this needs torch" in page.inner_text(".note")
        page.goto(f"{own}#model")
        page.wait_for_selector("td.block")
        page.goto(f"{own}#classify")
        page.wait_for_selector(".note")
        assert "no head for this view" in page.inner_text(".note")


def test_model_and_server(chromium: Browser, address: Addresses) -> None:
    """Catches: a plan, a size or a count of requests that is not the model's or the server's."""
    with tab(chromium) as page:
        page.goto(f"{address('albertine-mini-en')}#model")
        page.wait_for_selector("td.block")
        assert page.locator("td.block").all_inner_texts() == [*"1234", *"1234"]
        text = page.inner_text("main")
        assert "4,324,034" in text and "BLiMP (67,000 pairs)" in text
        page.goto(f"{address('albertine-mini-en')}#server")
        page.wait_for_selector("main td")
        assert "/analyze/model" in page.inner_text("main")


CHECKS = Path(__file__).with_name("page_checks.js").read_text(encoding="utf-8")


@pytest.mark.sample(1, keep=["dark"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_labels(chromium: Browser, address: Addresses, scheme: Any) -> None:
    """Catches: text that is hard to read on its ground; a control without a name; a view wider than a
    telephone."""
    with tab(chromium, errors=True, color_scheme=scheme, viewport={"width": 360, "height": 740}) as page:
        for name, views in VIEWS.items():
            for view, fields in {**views, "model": None, "server": None}.items():
                if fields is None:
                    page.goto(f"{address(name)}#{view}")
                    page.wait_for_selector("main td")
                else:
                    compute(page, address(name), view, fields)
                    page.click("summary")
                assert page.evaluate(f"{CHECKS}.contrast(4.5)") == [], (name, view)
                assert page.evaluate(f"{CHECKS}.unlabelled()") == [], (name, view)
                assert page.evaluate("document.scrollingElement.scrollWidth") <= 360, (name, view)
                assert page.locator("h1").count() == 1 and page.locator("main h2").count() == 1


def test_keyboard(chromium: Browser, address: Addresses) -> None:
    """Catches: a control that Tab does not reach, or out of its order, or without a visible focus."""
    with tab(chromium) as page:
        compute(page, address("fill-mask"), "fill", {"inputs": "the [MASK] man"})
        page.reload()
        page.wait_for_selector("#result .bars")
        places = []
        for _ in range(page.evaluate(f"{CHECKS}.controls()")):
            page.keyboard.press("Tab")
            place, visible = page.evaluate(f"{CHECKS}.focus()")
            assert visible
            places.append(place)
        assert places == sorted(set(places))
        page.focus("#field-inputs")
        page.fill("#field-inputs", "the old [MASK]")
        with page.expect_response("**/"):
            page.keyboard.press("Control+Enter")


def test_another_model_is_chosen(chromium: Browser, models: Callable[[str], Path]) -> None:
    """Catches: the page of one model with the answers of another."""
    with served(models("fill-mask"), models("single")) as url, tab(chromium) as page:
        page.goto(url)
        page.wait_for_selector("#result .bars")
        assert page.locator("#model option").all_inner_texts() == ["fill-mask", "single"]
        page.select_option("#model", "single")
        page.wait_for_url("**/models/single/")
        page.wait_for_selector("#name:text-is('single')")
        assert page.input_value("#model") == "single"
        with page.expect_response("**/models/single/predict") as answer:
            page.click("button.main")
        assert answer.value.ok
        page.select_option("#model", "fill-mask")
        page.wait_for_url("**/models/fill-mask/")


@pytest.mark.matrix  # a time, which other tests beside it lengthen
def test_first_paint(chromium: Browser, address: Addresses) -> None:
    """Catches: a page that waits for the model before it shows anything. The best of five, as the machine may
    be busy."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 1e9"
    times = []
    for _ in range(5):
        with tab(chromium) as page:
            page.goto(address("fill-mask"))
            page.wait_for_selector("#result .bars")
            times.append(page.evaluate(paint))
    assert min(times) < 300


def test_headers(models: Callable[[str], Path]) -> None:
    """Catches: a file without the policy or its tag; a page that needs the token; a foreign host that gets
    it; `POST /` that is not the model's."""
    with client_of(models("fill-mask")) as client:
        found = client.get("/", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"})
        assert found.status_code == 200 and found.headers["content-type"].startswith("text/html")
        assert client.head("/").headers["etag"] == found.headers["etag"] and not client.head("/").content
        for path in ("/", "/page/app.js", "/page/style.css", "/page/words.json"):
            found = client.get(path)
            assert (
                found.headers["content-security-policy"] == POLICY
                and found.headers["x-content-type-options"] == "nosniff"
            )
            same = client.get(path, headers={"if-none-match": f'"other", W/{found.headers["etag"]}'})
            assert (
                same.status_code == 304 and not same.content and same.headers["etag"] == found.headers["etag"]
            )
            assert client.get(path, headers={"host": "evil.example"}).status_code == 403
        assert client.post("/", json={"inputs": "the [MASK] man"}).json()[0]["token_str"]
        assert client.get("/info", headers={"sec-fetch-site": "cross-site"}).status_code == 403
        assert client.put("/").status_code == 405
        client.models.draining = True  # type: ignore[attr-defined]
        assert client.get("/").status_code == 200
        assert client.post("/", json={"inputs": "the [MASK] man"}).status_code == 503
    with client_of(models("fill-mask"), token=b"secret") as client:
        assert client.get("/").status_code == client.get("/page/app.js").status_code == 200
        assert client.get("/analyze/model").status_code == client.post("/", json={}).status_code == 401
