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
