"""report.html stands alone."""

import base64
import re
from html.parser import HTMLParser

import cv2
import numpy as np
import pytest
from matplotlib import pyplot as plt

from autodrive.viz.curves import loss_picture, read_losses
from autodrive.viz.report import Report, save_image

VOID = {"meta", "img", "br", "link"}


class Checker(HTMLParser):
    """Collects what a page refers to, and checks that every tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        values = dict(attributes)
        self.references += [values[k] for k in ("src", "href", "data", "action") if k in values]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def page(tmp_path):
    red = np.zeros((20, 30, 3), np.uint8)
    red[..., 2] = 255
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    report = Report("A <report> & more")
    report.text("What", "a < b")
    report.table(
        "Metrics", ["", "x"], [["mAP", 0.25], ["NDS", None], ["AP", float("nan")], ["n", 3]]
    )
    report.pictures(
        "Pictures",
        {
            "red": save_image(tmp_path / "red.png", red),
            "curve": save_image(tmp_path / "curve.jpg", figure),
        },
    )
    report.write(tmp_path / "report.html")
    assert not plt.get_fignums()
    return (tmp_path / "report.html").read_text()


def test_report_needs_no_other_file_and_no_network(page):
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert "script" not in checker.tags and "link" not in checker.tags
    assert checker.tags.count("img") == len(checker.references) == 2
    assert all(reference.startswith("data:image/") for reference in checker.references)
    assert "http" not in page and "url(" not in page and "@import" not in page


def test_pictures_in_the_report_are_the_pictures(page):
    (kind, content), (other, _) = re.findall(r'src="data:image/(\w+);base64,([^"]+)"', page)
    assert (kind, other) == ("png", "jpeg")
    image = cv2.imdecode(np.frombuffer(base64.b64decode(content), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape == (20, 30, 3) and (image == [0, 0, 255]).all()


def test_text_is_escaped_and_numbers_are_short(page):
    assert "A &lt;report&gt; &amp; more" in page and "a &lt; b" in page
    cells = re.findall("<td>(.*?)</td>", page)
    assert cells == ["mAP", "0.250", "NDS", "-", "AP", "-", "n", "3"]


def test_loss_curve_reads_what_training_wrote(tmp_path):
    path = tmp_path / "losses.jsonl"
    path.write_text("".join(f'{{"iter": {i}, "loss": {100 / i}}}\n' for i in range(1, 41)))
    rows = read_losses(path)
    assert len(rows) == 40 and rows[-1] == {"iter": 40, "loss": 2.5}
    figure = loss_picture(rows)
    (axes,) = figure.axes
    thin, thick = axes.lines
    assert list(thin.get_xdata()) == list(range(1, 41))
    assert thick.get_ydata()[0] == pytest.approx((100 + 50) / 2)  # a moving average over 2
    plt.close(figure)
