# SPDX-License-Identifier: Apache-2.0
"""The HTML report in a real browser: Debian's chromium, without a window, driven by its chromedriver.

    report_page_test.py OCTILE SOURCES [--screenshots DIR] [--require]

Exits by 77 (skipped) where no browser or no selenium is there, unless --require is given.
"""

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.select import Select
except ImportError:
    webdriver = None

ARGUMENTS = None  # Set by main().
WIDTHS = (390, 820, 1440)
SCHEMES = ("light", "dark")
# WCAG 2.1, level AA, for text of ordinary size.
LEAST_CONTRAST = 4.5

HOSTILE = "<img src=x onerror=\"window.pwned=1\"></script><script>window.pwned=2</script><!--&'\"\u202e\u2028"

# Pairs of texts in one drawing that overlap, as [text, text].
OVERLAPS = """
const found = [];
for (const svg of document.querySelectorAll('.plot svg')) {
  const texts = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
  for (let i = 0; i < texts.length; ++i) {
    for (let j = i + 1; j < texts.length; ++j) {
      const [a, b] = [texts[i][1], texts[j][1]];
      if (a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom) {
        found.push([texts[i][0], texts[j][0]]);
      }
    }
  }
}
return found;
"""

# Texts that stand beyond their drawing, and cells of heat maps whose number is wider than the cell.
CUT_OFF = """
const found = [];
for (const svg of document.querySelectorAll('.plot svg')) {
  const box = svg.getBoundingClientRect();
  for (const text of svg.querySelectorAll('text')) {
    const t = text.getBoundingClientRect();
    if (t.left < box.left - 1 || t.right > box.right + 1 || t.top < box.top - 1 || t.bottom > box.bottom + 1) {
      found.push(text.textContent);
    }
  }
}
for (const cell of document.querySelectorAll('.heat td, .heat th')) {
  if (cell.scrollWidth > cell.clientWidth + 1) found.push(cell.textContent);
}
return found;
"""

# Texts whose colour is too close to what lies behind them, as [text, contrast].
FAINT = """
const least = arguments[0];
const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
const luminance = ([r, g, b]) => {
  const linear = [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
};
const behind = (element) => {
  for (let e = element; e !== null; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour.length === 3 || colour[3] > 0.99) return colour;
  }
  return [255, 255, 255];
};
const found = [];
for (const element of document.querySelectorAll('body *')) {
  const own = [...element.childNodes].some(n => n.nodeType === 3 && n.textContent.trim() !== '');
  if (!own || element.closest('script, style, noscript, option') || element.getClientRects().length === 0) continue;
  const style = getComputedStyle(element);
  const front = parse(element.namespaceURI.endsWith('svg') ? style.fill : style.color);
  const [a, b] = [luminance(front), luminance(behind(element))];
  const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (contrast < least) found.push([element.textContent.slice(0, 40), contrast]);
}
return found;
"""


def row(shape, m, **fields):
    base = {
        "shape": shape, "n": 6144, "k": 4096, "m": m, "scope": "linear", "chained": False, "layout": "row_major",
        "accumulate": "fast", "baseline_us": 20.0 + m / 50, "baseline_kernel": "cublaslt", "best_vendor_us": 15.0 + m / 50,
        "best_vendor_kernel": "cublaslt", "chosen_us": 10.0 + m / 50, "chosen_kernel": "hopper_decode", "choice": "tile",
        "ratio": 2.0, "ratio_lo": 1.9, "ratio_hi": 2.1, "rounds": 20, "vs_vendor": 1.5, "vs_vendor_lo": 1.4,
        "vs_vendor_hi": 1.6, "floor_us": 9.0, "floor_share": 0.9, "tflops": 10.0, "gbps": 1000.0, "rel_error": 0.002,
    }
    return base | fields


def record(rows, **fields):
    return {
        "device_name": "X", "octile_version": "0.1.0", "kernel_source_hash": "0", "date": "2026-01-01T00:00:00Z",
        "unit": "us", "protocol": "p", "rows": rows, "command": "octile bench",
    } | fields


def microseconds(value):
    """As the page writes a time: three digits that count, and the unit."""
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} µs"


class ReportPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium")
        for argument in ("--headless=new", "--disable-gpu", "--hide-scrollbars", "--force-color-profile=srgb",
                         "--disable-dev-shm-usage", f"--user-data-dir={cls.folder.name}/profile"):
            options.add_argument(argument)
        if os.geteuid() == 0:
            options.add_argument("--no-sandbox")  # Chromium's sandbox refuses root; the pages are our own.
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        cls.browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        cls.browser.set_page_load_timeout(60)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.folder.cleanup()

    # Helpers.

    def page_of(self, source):
        """The page made from a file, or from a record as an object."""
        if not isinstance(source, str):
            path = os.path.join(self.folder.name, "record.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(source, file)
            source = path
        page = os.path.join(self.folder.name, "page.html")
        subprocess.run([ARGUMENTS.octile, "report", source, "--html", page], check=True, timeout=60)
        return page

    def open(self, source, width=1440, scheme="light", height=900):
        page = self.page_of(source)
        self.look(width, scheme, height)
        for log in ("browser", "performance"):
            self.browser.get_log(log)  # What went before is dropped.
        self.browser.get("file://" + page)
        self.assertEqual(self.browser.get_log("browser"), [])
        return page

    def look(self, width, scheme, height=900):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                     {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                     {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def js(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    def settle(self):
        """Two frames: the drawings follow a new width in the first."""
        self.browser.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50)));")

    def shown(self, column):
        return self.js("return [...document.querySelectorAll('#points-table tbody tr')].filter(r => !r.hidden)"
                       ".map(r => r.cells[arguments[0]].textContent.trim());", column)

    def column(self, title):
        titles = self.js("return [...document.querySelectorAll('#points-table thead th')].map(h => h.textContent.trim());")
        return titles.index(title)

    def header(self, title):
        return self.browser.find_elements(By.CSS_SELECTOR, "#points-table thead [role=button]")[self.column(title)]

    def h200(self):
        return os.path.join(ARGUMENTS.sources, "bench/results/NVIDIA_H200/bench_qwen3-8b.json")

    def h200_rows(self):
        """The rows of that record: every new measurement changes them, so that tests take what they expect from here."""
        with open(self.h200(), encoding="utf-8") as file:
            return json.load(file)["rows"]

    # Tests.

    def test_loads_nothing_but_itself(self):
        page = self.open(self.h200())
        requests = []
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                requests.append(message["params"]["request"]["url"])
        self.assertEqual(requests, ["file://" + page])

    def test_policy_stops_scripts_that_are_not_its_own(self):
        self.open(self.h200())
        self.js("const s = document.createElement('script'); s.textContent = 'window.pwned = 3';"
                "document.body.append(s);"
                "const d = document.createElement('div'); d.innerHTML = '<img src=data:, onerror=\"window.pwned = 4\">';"
                "document.body.append(d);")
        self.settle()
        self.assertIsNone(self.js("return window.pwned ?? null;"))

    def test_hostile_names_stay_text(self):
        rows = [row(HOSTILE, 1, chosen_kernel=HOSTILE + " {\"A\": 1}", choice=HOSTILE, baseline_kernel=HOSTILE,
                    scope=HOSTILE), row("__proto__", 2, choice="__proto__"), row("constructor", 4, choice="constructor")]
        self.open(record(rows, device_name=HOSTILE, protocol=HOSTILE, command=HOSTILE, commit=HOSTILE, **{HOSTILE: HOSTILE}))
        self.settle()
        self.assertIsNone(self.js("return window.pwned ?? null;"))
        self.assertEqual(self.js("return document.querySelectorAll('img').length;"), 0)
        visible = HOSTILE.replace("\u202e", "\ufffd").replace("\u2028", "\ufffd")
        self.assertEqual(self.js("return document.querySelector('h1').textContent;"), visible)
        self.assertEqual(len(self.shown(0)), 3)
        self.assertEqual(self.js("return document.querySelectorAll('.plot .dot').length;"), 3)
        self.assertIn("window.pwned", self.js("return document.querySelector('.plot h3').textContent;"))

    def test_one_plot_a_weight_with_every_point_and_named_axes(self):
        self.open(self.h200())
        self.assertEqual(self.js("return [...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('.dot').length);"),
                         [34, 34, 34, 34])
        self.assertEqual(self.js("return document.querySelectorAll('.plot svg .cliff-mark').length;"),
                         self.js("return document.querySelectorAll('#cliffs tbody tr').length;"))
        text = self.js("return document.querySelector('.plot svg').textContent;")
        for title in ("time, µs, log scale", "with 95 % intervals", "share of the floor, %", "M, tokens, log scale"):
            self.assertIn(title, text)
        self.assertFalse(self.js("return [...document.querySelectorAll('.plot path')].some(p => /NaN|Infinity/.test(p.getAttribute('d')));"))

    def test_arrow_keys_go_through_the_points_of_a_plot(self):
        self.open(self.h200())
        first_shape = self.h200_rows()[0]["shape"]
        expected = next(row for row in self.h200_rows() if row["shape"] == first_shape and row["m"] == 2)
        svg = self.browser.find_element(By.CSS_SELECTOR, ".plot svg")
        svg.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        self.assertIn("M 4", self.js("return document.querySelector('.readout').textContent;"))
        svg.send_keys(Keys.ARROW_LEFT)
        readout = self.js("return document.querySelector('.readout').textContent;")
        for part in ("M 2", f"baseline {microseconds(expected['baseline_us'])}",
                     f"searched vendor {microseconds(expected['best_vendor_us'])}",
                     f"choice {microseconds(expected['chosen_us'])}, {expected['choice']} {expected['chosen_kernel']}",
                     f"{expected['ratio']:.2f}x [{expected['ratio_lo']:.2f}, {expected['ratio_hi']:.2f}]"):
            self.assertIn(part, readout)

    def test_the_pointer_chooses_the_nearest_point(self):
        self.open(self.h200())
        self.js("const svg = document.querySelector('.plot svg'); svg.scrollIntoView();"
                "const dot = svg.querySelectorAll('.dot')[33].getBoundingClientRect();"
                "svg.dispatchEvent(new PointerEvent('pointermove', {clientX: dot.x + dot.width / 2, clientY: dot.y}));")
        self.assertIn("M 8192", self.js("return document.querySelector('.readout').textContent;"))

    def test_a_click_sorts_and_another_turns_it_round(self):
        self.open(record([row("b", 3), row("a", 1), row("a", 2, chosen_us=None, choice="failed"), row("a", 20)]))
        column = self.column("choice µs")
        header = self.header("choice µs")
        header.click()
        self.assertEqual(self.shown(column), ["10.0", "10.1", "10.4", "-"])
        self.assertEqual(self.js("return document.querySelectorAll('[aria-sort=ascending]').length;"), 1)
        header.click()
        self.assertEqual(self.shown(column), ["10.4", "10.1", "10.0", "-"])  # Not measured: last in both directions.
        self.assertEqual(self.js("return document.querySelectorAll('[aria-sort=descending]').length;"), 1)

    def test_sorting_works_from_the_keyboard(self):
        self.open(self.h200())
        self.header("M").send_keys(Keys.ENTER)
        values = [int(text) for text in self.shown(self.column("M"))]
        self.assertEqual(len(values), 136)
        self.assertEqual(values, sorted(values))
        self.header("M").send_keys(Keys.SPACE)
        self.assertEqual([int(text) for text in self.shown(self.column("M"))], sorted(values, reverse=True))

    def test_filters_by_text_shape_and_choice(self):
        self.open(self.h200())

        def count():
            return self.js("return document.getElementById('filter-count').textContent;")

        self.assertEqual(count(), "136 points")
        search = self.browser.find_element(By.ID, "filter-text")
        search.send_keys("hopper_wgmma")
        served = sum("hopper_wgmma" in row["chosen_kernel"] for row in self.h200_rows())
        self.assertIn(served, range(1, 136))
        self.assertEqual(len(self.shown(0)), served)
        self.assertEqual(count(), f"{served} of 136 points")
        search.clear()
        search.send_keys("nothing has this name")
        self.assertEqual(self.shown(0), [])
        search.clear()
        search.send_keys(Keys.SPACE)
        Select(self.browser.find_element(By.ID, "filter-shape")).select_by_visible_text("down (4096 × 12288)")
        self.assertEqual(len(self.shown(0)), 34)
        Select(self.browser.find_element(By.ID, "filter-choice")).select_by_visible_text("vendor")
        self.assertEqual(set(self.shown(self.column("serves"))), {"vendor"})
        self.assertTrue(all(text.startswith("down") for text in self.shown(0)))

    def test_fits_every_width_in_both_schemes(self):
        for source, name in ((self.h200(), "h200"), (self.many_points(), "many"), (self.curves(), "curves")):
            self.open(source)
            for width in WIDTHS:
                for scheme in SCHEMES:
                    with self.subTest(page=name, width=width, scheme=scheme):
                        self.look(width, scheme)
                        self.settle()
                        self.assertLessEqual(self.js("return document.scrollingElement.scrollWidth;"), width)
                        self.assertEqual(self.js(OVERLAPS), [])
                        self.assertEqual(self.js(CUT_OFF), [])
                        self.assertEqual(self.js(FAINT, LEAST_CONTRAST), [])
                        self.screenshot(f"{name}-{width}-{scheme}", width)

    def curves(self):
        """What `--all-m --compare` writes: hundreds of points, our own families alone, times of others."""
        def point(shape, m):
            own = {"own_us": 12.0 + m / 90 + m % 3, "own_kernel": 'hopper_wgmma {"BM": 64}', "own_ratio": 1.4,
                   "own_ratio_lo": 1.3, "own_ratio_hi": 1.5}
            published = [{"name": "a_ladder", "us": 13.0 + m / 80}, {"name": "another", "us": 18.0}] if m % 64 == 1 else []
            return row(shape, m, **own, published=published)
        ms = [*range(1, 513), *range(528, 16385, 496)]
        return record([point("qkv", m) for m in ms], all_m=True, published_from="theirs.csv",
                      left_out=[{"shape": "qkv", "n": 6144, "k": 4096, "m": [20000], "reason": "it did not fit the time budget"}])

    def test_curves_show_our_families_alone_and_published_times(self):
        self.open(self.curves())
        self.assertEqual(self.js("return document.querySelectorAll('.plot .series.own').length;"), 1)
        self.assertEqual(self.js("return document.querySelectorAll('.plot .foreign').length;"), 2 * 8)
        legend = self.js("return document.querySelector('#plot-legend').innerText;")
        for text in ("own families alone", "a_ladder (from theirs.csv, other run)", "another (from theirs.csv, other run)"):
            self.assertIn(text, legend)
        readout = self.js("return document.querySelector('.plot .readout').innerText;")
        self.assertIn("own families alone", readout)
        self.assertIn("a_ladder, other run", readout)
        self.assertFalse(self.js("return [...document.querySelectorAll('.plot path')].some(p => /NaN|Infinity/.test(p.getAttribute('d')));"))

    def many_points(self):
        """What `--thorough` may measure: more M than a heat map has columns, long names, times from 1 µs to 1 s."""
        shape = "a_shape_with_a_name_that_is_longer_than_any_that_models_have"
        rows = [row(shape, m, chosen_us=0.9 * m ** 1.4, baseline_us=m ** 1.4, best_vendor_us=None, best_vendor_kernel="",
                    vs_vendor=None, vs_vendor_lo=None, vs_vendor_hi=None) for m in range(1, 20001, 97)]
        return record(rows + [row("o", m) for m in (1, 2)])

    def screenshot(self, name, width):
        if ARGUMENTS.screenshots is None:
            return
        height = self.js("return document.documentElement.scrollHeight;")
        picture = self.browser.execute_cdp_cmd("Page.captureScreenshot", {
            "format": "png", "captureBeyondViewport": True,
            "clip": {"x": 0, "y": 0, "width": width, "height": min(height, 8000), "scale": 1}})
        self.save(name + ".png", picture["data"])

    def save(self, name, data):
        if ARGUMENTS.screenshots is not None:
            os.makedirs(ARGUMENTS.screenshots, exist_ok=True)
            with open(os.path.join(ARGUMENTS.screenshots, name), "wb") as file:
                file.write(base64.b64decode(data))

    def test_prints_light_with_every_row_and_no_controls(self):
        self.open(self.h200(), scheme="dark")
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {
            "media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
        self.settle()
        self.assertEqual(self.js("return getComputedStyle(document.body).backgroundColor;"), "rgb(255, 255, 255)")
        self.assertEqual(self.js("return getComputedStyle(document.getElementById('filters')).display;"), "none")
        table = "document.querySelector('#points .scroll')"
        self.assertTrue(self.js(f"return getComputedStyle({table}).overflow === 'visible';"))
        self.assertTrue(self.js(f"return {table}.clientHeight >= document.getElementById('points-table').clientHeight;"))
        pdf = self.browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": False})["data"]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        self.assertTrue(base64.b64decode(pdf).startswith(b"%PDF-"))
        self.assertGreater(len(pdf), 50_000)
        self.save("h200.pdf", pdf)

    def test_without_scripts_everything_but_the_plots_is_there(self):
        self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            self.open(self.h200(), width=390)
            self.assertEqual(self.js("return document.querySelectorAll('#points-table tbody tr').length;"), 136)
            self.assertEqual(self.js("return document.querySelectorAll('.heat').length;"), 2)
            self.assertEqual(self.js("return document.querySelectorAll('#points-table [role=button]').length;"), 0)
            self.assertFalse(self.browser.find_element(By.ID, "filters").is_displayed())
            self.assertIn("switched off", self.js("return document.querySelector('#plots').innerText;"))
            self.assertLessEqual(self.js("return document.scrollingElement.scrollWidth;"), 390)
        finally:
            self.browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})

    def test_one_point_and_no_point_are_pages_too(self):
        self.open(record([row("qkv", 16)]))
        self.assertEqual(self.js("return document.querySelectorAll('.plot .dot').length;"), 1)
        # Baseline and vendor among times and ratios, the floor, the share: each a dot, since one point makes no line.
        self.assertEqual(self.js("return document.querySelectorAll('.plot .lone circle').length;"), 6)
        self.assertEqual(self.js("return document.querySelectorAll('.plot .lone path').length;"), 4)
        self.assertFalse(self.js("return [...document.querySelectorAll('.plot path')].some(p => /NaN|Infinity/.test(p.getAttribute('d')));"))
        self.open(record([]))
        self.assertEqual(self.shown(0), [])
        self.assertIn("Nothing was measured", self.js("return document.querySelector('#plots').textContent;"))


def main():
    global ARGUMENTS
    parser = argparse.ArgumentParser()
    parser.add_argument("octile")
    parser.add_argument("sources")
    parser.add_argument("--screenshots", help="Where to put pictures of the page, for people to look at")
    parser.add_argument("--require", action="store_true", help="A missing browser is an error")
    ARGUMENTS = parser.parse_args()
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    missing += ["selenium"] if webdriver is None else []
    if missing:
        print(f"skipped: {', '.join(missing)} not found; `scripts/setup.sh browser` installs them", file=sys.stderr)
        return 1 if ARGUMENTS.require else 77
    outcome = unittest.main(argv=[sys.argv[0]], exit=False).result
    return 0 if outcome.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
