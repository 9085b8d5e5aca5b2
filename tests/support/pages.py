"""What a page shows, read back from its HTML, and what its drawings look like in a browser."""

import base64
import io
import json
import re

import numpy as np
from PIL import Image

PLOT = re.compile(r'aria-label="([^"]*)".*?<script type="application/json">(.*?)</script>', re.DOTALL)
IMAGE = re.compile(r"data:image/png;base64,([\w+/=]+)")

DRAWN = """[...document.querySelectorAll('.area')].map((area) => {
  const box = area.getBoundingClientRect();
  const shapes = [...area.querySelectorAll('path, .heat')].filter((shape) => {
    const drawn = shape.getBoundingClientRect();
    const inside = drawn.left > box.left - 5 && drawn.right < box.right + 5
      && drawn.top > box.top - 5 && drawn.bottom < box.bottom + 5;
    return inside && drawn.width + drawn.height > 2;
  });
  return box.width > 100 && box.height > 100 && shapes.length > 0;
})"""
"""For each plot in a browser: whether it has room, and something is drawn inside it."""

FAINT = """(() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (colour) => rgba(colour).slice(0, 3)
    .map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (rgba(colour)[3] === 255) return colour;
    }
    throw new Error('no ground');
  };
  const seen = [...document.querySelectorAll('body *')].filter((element) => element.checkVisibility()
    && !['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(element.tagName)
    && [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  const faint = seen.filter((element) => {
    const style = getComputedStyle(element);
    const ink = luminance(element instanceof SVGElement ? style.fill : style.color);
    const ground = luminance(behind(element));
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05) < 4.5;
  });
  return [seen.length, faint.map((element) => element.textContent.slice(0, 40))];
})()"""
"""How many pieces of text can be seen, and those whose contrast with what lies behind is below 4.5 (WCAG)."""


def charts_of(html):
    """The data of each plot of a page by its title; a heat map also has its `share`, as the picture shows it."""
    found = {}
    for part in html.split("<figure")[1:]:
        title, text = PLOT.search(part).groups()
        found[title] = json.loads(text)
        image = IMAGE.search(part)
        if image:
            pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(image[1]))))
            found[title]["share"] = (pixels[..., 1] / 255 * found[title]["top"]).tolist()
    return found
