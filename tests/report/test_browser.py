"""The page in a browser: silent, offline, alive, and readable wide and narrow, light and dark."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpn
from gpn.report import write_report
from tests.report.conftest import SETTINGS, model_of

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="chromium and chromedriver (Debian's chromium, chromium-driver) are not installed",
)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
PAGES = ("regression", "classification", "ensemble")
SHARED = {
    "ood-scale": "plot-ood",
    "ood-row": "plot-difference",
    "ood-neighbour": "plot-difference",
    "functions-row": "plot-functions",
    "functions-feature": "plot-functions",
}
CLASS_CONTROLS = {"boxes-row": "plot-boxes", "functions-class": "plot-functions"}
CONTROLS = {
    "regression": SHARED,
    "classification": {**SHARED, **CLASS_CONTROLS},
    "ensemble": SHARED,
}
READY = "return document.documentElement.dataset.ready"  # milliseconds from the start
DATA = """return JSON.stringify(document.getElementById(arguments[0]).data.map(
  t => ({x: t.x, y: t.y, q1: t.q1, name: t.name, color: (t.line || {}).color})))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


def emulate(browser: Any, width: int = 1280, scheme: str = "light") -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def open_page(browser: Any, path: Path) -> None:
    browser.get("about:blank")
    browser.get(path.as_uri())
    WebDriverWait(browser, 30).until(lambda b: b.execute_script(READY))
    browser.execute_script("report.drawAll()")  # as before printing


def drawn(browser: Any, plot: str) -> Any:
    return json.loads(browser.execute_script(DATA, plot))


def requests(browser: Any) -> list[str]:
    """Every address requested since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [message["params"]["request"]["url"] for message in sent]


@pytest.mark.parametrize("page", PAGES)
def test_it_opens_without_messages_or_requests(browser: Any, pages: Path, page: str) -> None:
    emulate(browser)
    requests(browser), browser.get_log("browser")
    open_page(browser, pages / f"{page}.html")
    schemes = {url.split(":")[0] for url in requests(browser)}
    assert schemes <= {"file", "data", "blob"}
    assert browser.get_log("browser") == []
    empty = "return [...document.querySelectorAll('.plot')].filter(p => !p.data).map(p => p.id)"
    assert browser.execute_script(empty) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_control_changes_its_plot(browser: Any, pages: Path, page: str) -> None:
    emulate(browser)
    open_page(browser, pages / f"{page}.html")
    found = {select.get_attribute("id") for select in browser.find_elements(By.TAG_NAME, "select")}
    assert found == set(CONTROLS[page]), "no control without a test"
    for control, plot in CONTROLS[page].items():
        before, select = drawn(browser, plot), Select(browser.find_element(By.ID, control))
        now = select.options.index(select.first_selected_option)
        select.select_by_index((now + 1) % len(select.options))
        assert drawn(browser, plot) != before, control
    assert browser.get_log("browser") == []


def test_plots_are_drawn_as_they_come_near(browser: Any, pages: Path) -> None:
    emulate(browser)
    browser.get("about:blank")
    browser.get((pages / "regression.html").as_uri())
    WebDriverWait(browser, 30).until(lambda b: b.execute_script(READY))
    is_drawn = "return Boolean(document.getElementById('plot-functions').data)"
    assert not browser.execute_script(is_drawn)
    browser.execute_script("document.getElementById('functions').scrollIntoView()")
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(is_drawn))


def test_the_false_positive_rate_moves_the_threshold(browser: Any, pages: Path) -> None:
    emulate(browser)
    open_page(browser, pages / "regression.html")
    where = "return document.getElementById('plot-ood').layout.shapes[0].x0"
    before, summary = browser.execute_script(where), browser.find_element(By.ID, "ood-summary").text
    browser.find_element(By.ID, "ood-rate").send_keys(Keys.ARROW_RIGHT * 5)
    assert browser.execute_script(where) < before
    assert browser.find_element(By.ID, "ood-summary").text != summary
    assert browser.find_element(By.ID, "ood-rate-text").text == "10 %"


def test_a_row_of_the_table_can_be_chosen(browser: Any, pages: Path) -> None:
    emulate(browser)
    open_page(browser, pages / "regression.html")
    before = drawn(browser, "plot-difference")
    browser.find_elements(By.CSS_SELECTOR, "#ood-table button")[3].click()
    assert drawn(browser, "plot-difference") != before
    assert Select(browser.find_element(By.ID, "ood-row")).first_selected_option.text != ""


FUNCTION = """const {data, slice, state, byId} = report, f = data.functions;
const at = ['functions-row', 'functions-feature'].map(name => Number(byId(name).value));
const lines = byId('plot-functions').data;
return JSON.stringify({code: state.code, base: slice(f.base, ...at),
  loadings: slice(f.loadings, ...at),
  drawn: state.moved.map(i => Array.from(lines[i].y))})"""


def moved(browser: Any) -> tuple[list[float], Any, Any]:
    """The code, the lines drawn for it, and the exact lines: (points, outputs) each."""
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    found = json.loads(browser.execute_script(FUNCTION))
    lines = np.array(found["drawn"]).T
    points, outputs = lines.shape
    base = np.array(found["base"]).reshape(points, outputs)
    values = base + np.array(found["loadings"]).reshape(points, outputs, 2) @ found["code"]
    if outputs > 1:
        powers = np.exp(values - values.max(1, keepdims=True))
        values = powers / powers.sum(1, keepdims=True)
    return found["code"], lines, values


@pytest.mark.parametrize("page", ["regression", "classification"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_pointer_moves_the_function(browser: Any, pages: Path, page: str, width: int) -> None:
    emulate(browser, width)
    open_page(browser, pages / f"{page}.html")
    plane = browser.find_element(By.ID, "plane")
    before = moved(browser)
    assert before[1] == pytest.approx(before[2], abs=1e-5)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plane)
    quarter = plane.size["width"] // 4
    ActionChains(browser).move_to_element_with_offset(plane, -quarter, quarter).perform()
    code, lines, exact = moved(browser)
    assert code == pytest.approx([-1.5, -1.5], abs=0.1)
    assert lines == pytest.approx(exact, abs=1e-5)
    assert np.abs(lines - before[1]).max() > 1e-4
    assert "z₁ = −1." in browser.find_element(By.ID, "plane-code").text


def test_arrow_keys_and_the_button_move_it_too(browser: Any, pages: Path) -> None:
    emulate(browser)
    open_page(browser, pages / "regression.html")
    plane = browser.find_element(By.ID, "plane")
    browser.execute_script("arguments[0].focus()", plane)
    plane.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    code, lines, exact = moved(browser)
    assert code == pytest.approx([1.1, 0.9])
    assert lines == pytest.approx(exact, abs=1e-5)
    browser.execute_script("document.getElementById('plane-reset').click()")
    assert moved(browser)[0] == [0, 0]


def test_a_finger_moves_it(browser: Any, pages: Path) -> None:
    emulate(browser, 400)
    open_page(browser, pages / "regression.html")
    plane = browser.find_element(By.ID, "plane")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plane)
    box = browser.execute_script("return arguments[0].getBoundingClientRect().toJSON()", plane)
    for kind, share in (("touchStart", 0.5), ("touchMove", 0.75)):
        at = {"x": box["x"] + share * box["width"], "y": box["y"] + 0.5 * box["height"]}
        browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [at]})
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert moved(browser)[0] == pytest.approx([1.5, 0.0], abs=0.1)


OVERFLOW = """const wide = document.documentElement.clientWidth;
return [...document.querySelectorAll('main *')]
  .filter(e => !e.closest('.scroll') && e.getClientRects().length)
  .filter(e => e.getBoundingClientRect().right > wide + 1)
  .map(e => e.tagName + '#' + e.id + '.' + e.className)"""


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_is_wider_than_the_screen(browser: Any, pages: Path, page: str, width: int) -> None:
    emulate(browser, width)
    open_page(browser, pages / f"{page}.html")
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(OVERFLOW) == []


HEIGHTS = """const height = element => element.getBoundingClientRect().height;
return [...document.querySelectorAll('.plot')]
  .filter(plot => height(plot) + 1 < height(plot.querySelector('svg'))).map(plot => plot.id)"""


@pytest.mark.parametrize("page", PAGES)
def test_no_plot_lies_over_the_text_below_it_once_the_width_has_changed(
    browser: Any, pages: Path, page: str
) -> None:
    emulate(browser, 1000)
    open_page(browser, pages / f"{page}.html")
    for width in (760, 400):
        emulate(browser, width)
        browser.execute_async_script("setTimeout(arguments[0], 400)")
        assert browser.execute_script(HEIGHTS) == []


def test_small_scores_have_powers_of_ten(browser: Any, pages: Path) -> None:
    emulate(browser)
    open_page(browser, pages / "regression.html")
    for plot in ("plot-ood", "plot-score-importance"):
        form = browser.execute_script(f"return document.getElementById('{plot}').layout.xaxis")
        assert form["exponentformat"] == "power"


INK = """const of = name => getComputedStyle(document.querySelector(name));
return [of('html').backgroundColor, of('body').color, of('.text').color, of('#ood').backgroundColor,
  document.querySelector('#plot-ood .xtick text').style.fill]"""


def brightness(color: str) -> float:
    """Relative luminance of "rgb(r, g, b)"."""
    parts = np.array([float(p) for p in color.partition("(")[2].rstrip(")").split(",")[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(first: str, second: str) -> float:
    high, low = sorted((brightness(first), brightness(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_contrast_with_their_background(browser: Any, pages: Path, scheme: str) -> None:
    emulate(browser, scheme=scheme)
    open_page(browser, pages / "regression.html")
    background, ink, quiet, paper, ticks = browser.execute_script(INK)
    assert (brightness(background) > 0.5) == (scheme == "light")
    assert min(contrast(ink, background), contrast(quiet, paper), contrast(ticks, paper)) > 4.5


def test_plots_follow_the_page_from_light_to_dark(browser: Any, pages: Path) -> None:
    emulate(browser)
    open_page(browser, pages / "classification.html")
    plots = ("plot-ood", "plot-functions", "plot-risk", "plot-entropy")
    before = [drawn(browser, plot)[0]["color"] for plot in plots]
    emulate(browser, scheme="dark")
    WebDriverWait(browser, 10).until(
        lambda b: all(drawn(b, p)[0]["color"] != c for p, c in zip(plots, before, strict=True))
    )


@pytest.mark.parametrize("page", PAGES)
def test_names_that_look_like_scripts_are_names(browser: Any, pages: Path, page: str) -> None:
    emulate(browser)
    open_page(browser, pages / f"{page}.html")
    for select in browser.find_elements(By.TAG_NAME, "select"):
        for i in range(len(Select(select).options)):
            Select(select).select_by_index(i)
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.images.length") == 0
    options = Select(browser.find_element(By.ID, "functions-feature")).options
    assert any("<script>" in option.text for option in options), "shown as text"
    shown = "return [...document.querySelectorAll('.plot svg text')].map(t => t.textContent).join()"
    assert "<script>" in browser.execute_script(shown)
    assert browser.get_log("browser") == []


def test_the_page_of_a_long_and_wide_pool_is_small_and_quick(browser: Any, tmp_path: Path) -> None:
    """17,000 rows of 81 columns: under 10 MB, and open in under 3 seconds."""
    rng = np.random.default_rng(0)
    names = [f"column {i}" for i in range(81)]
    pool = pd.DataFrame(rng.normal(size=(17_000, 81)), columns=names)
    labeled = pool.iloc[:300].assign(y=pool["column 0"])
    config = gpn.GPNConfig(**SETTINGS, trunk=gpn.MLPTrunk(widths=(16,)), n_axes=40)
    model = model_of(gpn.GPNRegressor(config, random_state=0), labeled, "y", pool.iloc[:500])
    path = write_report(model, labeled, pool, tmp_path / "wide.html")
    assert path.stat().st_size < 10e6
    emulate(browser)
    seconds = []
    for _ in range(3):
        open_page(browser, path)
        seconds.append(float(browser.execute_script(READY)) / 1000)
    assert min(seconds) < 3, seconds
    assert len(Select(browser.find_element(By.ID, "functions-feature")).options) == 81


def test_a_fit_that_warned_says_so(browser: Any, pages: Path) -> None:
    open_page(browser, pages / "regression.html")
    text = browser.find_element(By.CSS_SELECTOR, ".note.warning").text
    assert "a warning with <script>" in text
