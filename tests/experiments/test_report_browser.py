"""The report in a browser: one page, one headless Chromium, looked at from several sides."""

import shutil
from pathlib import Path

import pytest
from experiments import result_folder as made

from adahb.experiments import report
from adahb.experiments.store import to_json

pytestmark = pytest.mark.slow

DRAWN = "return document.querySelectorAll('.panel[data-drawn]').length"
FIGURE = "document.querySelector('#figure-{} .plot')"


@pytest.fixture(scope="module")
def chromium():
    """A browser without a window."""
    webdriver = pytest.importorskip("selenium.webdriver")
    pytest.importorskip("plotly")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium, or no chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"):
        options.add_argument(f"--{argument}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def page(chromium, tmp_path_factory):
    """The report of a folder whose labels are hostile, with every panel drawn."""
    folder = made.filled(tmp_path_factory.mktemp("results"))
    content = made.claims()
    content["claims"][0]["statement"] = made.HOSTILE
    (folder / "claims.json").write_text(to_json(content))
    path = report.write_report(folder, folder / "page")
    chromium.get(Path(path).as_uri())
    chromium.execute_script("dispatchEvent(new Event('beforeprint'))")
    return chromium


@pytest.fixture
def look(page):
    """Set the width of the window and the reader's mode; afterwards all is as before."""

    def set_to(*, width=1200, mode="light"):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": mode}
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    set_to()
    yield set_to
    set_to()


def soon(page, condition):
    """Wait for what the browser does in its own time."""
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(page, 20, 0.05).until(lambda _: condition())


def shown(page, figure, k):
    """Whether the curve with a name is seen in each panel of a figure."""
    script = (
        "return [...document.querySelectorAll(`#figure-${arguments[0]} .plot`)].map("
        "plot => plot.data.filter(trace => trace.name)[arguments[1]].visible)"
    )
    return page.execute_script(script, figure, k)


def test_it_renders_and_the_console_is_silent(page, look):
    assert page.execute_script(DRAWN) == 4 + 2 + 1
    drawn = "return [...document.querySelectorAll('.panel .scatterlayer')].map(x => x.innerHTML)"
    assert all("<path" in layer for layer in page.execute_script(drawn))
    assert page.execute_script("return document.querySelector('details.still').open") is False
    assert page.get_log("browser") == []


def test_axes_are_labelled(page, look):
    titles = page.execute_script(
        "return [...document.querySelectorAll('.plot')].map(plot => "
        "[plot.querySelector('.xtitle').textContent, plot.querySelector('.ytitle').textContent])"
    )
    assert titles[0] == ["epoch", "training loss"]
    assert ["iteration t", "f(wt) − f*"] in [[x, y.replace("\u200b", "")] for x, y in titles]
    assert all(x and y for x, y in titles)


def test_the_legend_turns_a_curve_off_and_on_in_all_panels(page, look):
    button = page.find_elements("css selector", "#figure-5 .legend button")[0]
    assert shown(page, 5, 0) == [True, True]
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert shown(page, 5, 0) == [False, False]
    assert shown(page, 5, 1) == [True, True]
    button.click()
    assert shown(page, 5, 0) == [True, True]
    assert page.get_log("browser") == []


def test_axes_can_be_logarithmic(page, look):
    kind = f"return {FIGURE.format(5)}._fullLayout.yaxis.type"
    button = page.find_elements("css selector", "#figure-5 .choices button")[1]
    assert page.execute_script(kind) == "linear"
    button.click()
    assert page.execute_script(kind) == "log"
    button.click()
    assert page.execute_script(f"return {FIGURE.format(6)}._fullLayout.yaxis.type") == "log"


def test_the_protocol_can_be_chosen(page, look):
    published, fair = page.find_elements("css selector", "#figure-1 .choices button")[:2]
    fair.click()
    assert (published.get_attribute("aria-pressed"), fair.get_attribute("aria-pressed")) == (
        "false",
        "true",
    )
    published.click()
    assert published.get_attribute("aria-pressed") == "true"


def test_pointing_at_a_curve_gives_its_numbers(page, look):
    text = page.execute_script(
        f"const plot = {FIGURE.format(6)};"
        "Plotly.Fx.hover(plot, [{curveNumber: 2, pointNumber: 1}]);"
        "return plot.querySelector('.hoverlayer').textContent"
    )
    assert text == "PSG, averageepoch 10.1 [0.05, 0.2]"


def test_images_and_plots_have_words(page, look):
    alts = page.execute_script("return [...document.images].map(image => image.alt)")
    assert len(alts) == 1
    assert all(alts)
    labels = page.execute_script(
        "return [...document.querySelectorAll('.plot')].map(x=>x.ariaLabel)"
    )
    assert all("Figure" in label for label in labels)


@pytest.mark.parametrize("width", [375, 1200])
def test_nothing_is_wider_than_the_window(page, look, width):
    look(width=width)
    root = "document.documentElement"
    assert page.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth")
    wide = (
        "return [...document.querySelectorAll('.scroll')].some(x => x.scrollWidth > x.clientWidth)"
    )
    assert page.execute_script(wide) is (width == 375)
    fits = (
        "return [...document.querySelectorAll('.plot')].every("
        "plot => plot._fullLayout.width <= plot.clientWidth)"
    )
    soon(page, lambda: page.execute_script(fits))


def test_plots_follow_the_dark_mode(page, look):
    colours = (
        f"const layout = {FIGURE.format(5)}._fullLayout, trace = {FIGURE.format(5)}.data[0];"
        "return [getComputedStyle(document.body).backgroundColor, layout.font.color,"
        " trace.line.color]"
    )
    assert page.execute_script(colours) == ["rgb(255, 255, 255)", "#1b1b1b", "#1b1b1b"]
    look(mode="dark")
    dark = ["rgb(21, 23, 26)", "#e8e6e3", "#e8e6e3"]
    soon(page, lambda: page.execute_script(colours) == dark)


def test_what_comes_from_a_file_is_shown_and_not_run(page, look):
    assert page.execute_script("return typeof window.hacked") == "undefined"
    labels = page.find_elements("css selector", "#figure-5 .legend button")
    assert labels[1].text == made.HOSTILE
    tile = page.find_element("css selector", ".tiles .statement")
    assert tile.text != ""
    part = page.find_element("css selector", "details.part summary")
    assert made.HOSTILE in part.text
    text = page.execute_script(
        f"const plot = {FIGURE.format(5)};"
        "Plotly.Fx.hover(plot, [{curveNumber: 1, pointNumber: 1}]);"
        "return plot.querySelector('.hoverlayer').textContent"
    )
    assert text.startswith(made.HOSTILE)


def test_nothing_is_fetched(page, look):
    fetched = page.execute_script(
        "return performance.getEntriesByType('resource').map(x => x.name)"
    )
    assert [name for name in fetched if not name.startswith("data:")] == []


KEPT = {"verdict", "id"}
"""Keys whose strings have a meaning; an id may be any, but then belongs to no claim."""


def all_hostile(value, key=""):
    """The same with every text made to do harm; what a figure is of still begins with its name."""
    if isinstance(value, dict):
        return {k: all_hostile(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [all_hostile(v, key) for v in value]
    if not isinstance(value, str) or key in KEPT:
        return value
    return value + made.HOSTILE + "javascript:hacked=1 ${hacked=1} {{7*7}} <a href='javascript:0'>"


def test_files_full_of_harm_run_nothing(chromium, tmp_path):
    """Last, for it leaves the page that the other tests look at."""
    contents = {"figure5": made.figure5(), "convex": made.convex(), "deep-paper": made.deep()}
    for name, content in {"claims": made.claims(), **contents}.items():
        (tmp_path / f"{name}.json").write_text(to_json(all_hostile(content)))
    (tmp_path / "figure5.svg").write_bytes(made.SVG)
    path = report.write_report(tmp_path, tmp_path / "page")
    chromium.get(Path(path).as_uri())
    chromium.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert chromium.execute_script(DRAWN) == 4 + 2 + 1
    look = "return [typeof hacked, document.querySelectorAll('main a:not([href^=\"#\"])').length]"
    assert chromium.execute_script(look) == ["undefined", 0]
    assert "hacked=1" in chromium.find_element("css selector", "main").text
    links = "return document.querySelectorAll('.plot a, .plot script, .plot img').length"
    assert chromium.execute_script(links) == 0
    assert chromium.get_log("browser") == []
