"""One HTML file that holds everything a run has to show: no other file, no network needed."""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from autodrive.data.files import write_bytes

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2733; margin: 0; background: #f5f6f8; }
main { max-width: 1180px; margin: 0 auto; padding: 24px; }
section { background: white; border-radius: 8px; padding: 16px 24px 24px; margin: 18px 0;
          box-shadow: 0 1px 3px #0002; }
h1 { margin: 8px 0; } h2 { margin: 6px 0 10px; font-size: 19px; }
img { max-width: 100%; height: auto; display: block; margin: 8px 0; border-radius: 4px; }
figure { margin: 0 0 18px; } figcaption { color: #5a6877; }
table { border-collapse: collapse; } td, th { padding: 3px 14px; border-bottom: 1px solid #e5e8ec; }
td:not(:first-child), th:not(:first-child) { text-align: right; font-variant-numeric: tabular-nums; }
"""


@dataclass
class Report:
    """Sections in the order in which they are added; `write` makes the file."""

    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, heading: str, paragraph: str) -> None:
        self.parts.append(_section(heading, f"<p>{html.escape(paragraph)}</p>"))

    def table(self, heading: str, columns: Sequence[str], rows: Sequence[Sequence]) -> None:
        """Numbers are written with three digits, None and NaN as a dash."""
        head = "".join(f"<th>{html.escape(str(c))}</th>" for c in columns)
        body = "".join(
            f"<tr>{''.join(f'<td>{html.escape(_cell(v))}</td>' for v in row)}</tr>" for row in rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        self.parts.append(_section(heading, table))

    def pictures(self, heading: str, images: Mapping[str, Path]) -> None:
        """Image files by caption."""
        figures = "".join(
            f'<figure><figcaption>{html.escape(caption)}</figcaption><img alt="{html.escape(caption)}" '
            f'src="data:image/{_kind(path)};base64,{base64.b64encode(path.read_bytes()).decode()}"></figure>'
            for caption, path in images.items()
        )
        self.parts.append(_section(heading, figures))

    def write(self, path: str | Path) -> None:
        title = html.escape(self.title)
        page = (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
            f"<body><main><h1>{title}</h1>{''.join(self.parts)}</main></body></html>\n"
        )
        write_bytes(path, page.encode())


def save_image(path: str | Path, picture: np.ndarray | Figure) -> Path:
    """Writes a BGR image or a matplotlib figure (and closes it) to a .jpg or .png file."""
    path = Path(path)
    if isinstance(picture, Figure):
        buffer = io.BytesIO()
        picture.savefig(buffer, format=path.suffix.lstrip("."))
        plt.close(picture)
        write_bytes(path, buffer.getvalue())
    else:
        write_bytes(path, cv2.imencode(path.suffix, picture)[1].tobytes())
    return path


def _section(heading: str, content: str) -> str:
    return f"<section><h2>{html.escape(heading)}</h2>{content}</section>"


def _kind(path: Path) -> str:
    return "jpeg" if path.suffix == ".jpg" else path.suffix.lstrip(".")


def _cell(value) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
