"""Reads a page as a test needs it: its elements, its words, whether it is well-formed, and what its data addresses hold."""

import base64
from html.parser import HTMLParser
from urllib.parse import unquote_to_bytes

VOID = {"meta", "link", "img", "input"}


class Reader(HTMLParser):
    """Elements, texts and whether every element that opens closes in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag, **wanted):
        wanted = {name.rstrip("_"): value for name, value in wanted.items()}
        return [found for name, found in self.elements if name == tag and wanted.items() <= found.items()]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def content(uri):
    head, body = uri.split(",", 1)
    return base64.b64decode(body) if head.endswith("base64") else unquote_to_bytes(body)
